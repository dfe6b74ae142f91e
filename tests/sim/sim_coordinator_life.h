// What a coordinator's process has in the simulation: the shipped cores, and what joins them.
#ifndef STRATA_TESTS_SIM_SIM_COORDINATOR_LIFE_H_
#define STRATA_TESTS_SIM_SIM_COORDINATOR_LIFE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/engine/sequence_numbers.h"
#include "coordinator/members/control_streams.h"
#include "coordinator/members/members.h"
#include "coordinator/members/node_channel.h"
#include "tests/sim/deployment_watch.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_standbys.h"
#include "tests/sim/sim_step_links.h"

namespace strata::sim {

// What a process has, and loses with its end.
struct SimCoordinator::Life {
  Life(SimCoordinator* process, uint64_t term, nanoseconds lease)
      : term(term),
        sequence_numbers(term),
        cluster({.lease = lease, .heartbeat = lease / 5}),
        links(process->cluster_, &deployments,
              [process, incarnation = process->incarnation_](const auto& what) {
                process->Turn(incarnation, what);
              }),
        standbys(process->cluster_, process->model_.get(), &cluster, &deployments, process,
                 [process, incarnation = process->incarnation_](const auto& what) {
                   process->Turn(incarnation, what);
                 }),
        members(term, &cluster, &deployments, &streams,
                [process](const std::string& node) { process->OnLost(node); }) {}

  const uint64_t term;
  SequenceNumbers sequence_numbers;
  ClusterState cluster;
  ControlStreams streams;
  std::map<std::string, std::shared_ptr<NodeChannel>> channels;  // Of the streams, by node.
  Deployments deployments;
  SimStepLinks links;
  SimStandbys standbys;
  Members members;
  std::map<uint64_t, DeploymentWatch> watches;  // By deployment.
  std::set<uint64_t> unrecorded;                // Deployments whose record is asked for.
  std::optional<TimePoint> wake;
  bool expiring = false;
  // Blobs on their way to workers.
  std::map<uint64_t, std::unique_ptr<WeightHolders::Sending>> sendings;
  uint64_t newest_sending = 0;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_COORDINATOR_LIFE_H_
