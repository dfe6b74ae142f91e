// Who is in a simulation.
#ifndef STRATA_TESTS_SIM_CLUSTER_H_
#define STRATA_TESTS_SIM_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/frame.h"
#include "tests/sim/network.h"
#include "tests/sim/rank_fibers.h"
#include "tests/sim/world.h"

namespace strata::sim {

class SimCoordinator;
class SimWorker;

struct Cluster {
  World* world = nullptr;
  Network* network = nullptr;
  std::unique_ptr<RankFibers> ranks;                // Of those that wait within calls.
  std::vector<std::unique_ptr<SimWorker>> workers;  // By machine.
  SimCoordinator* coordinator = nullptr;
  uint64_t incarnations = 0;  // Given out.

  SimWorker* worker(Machine machine) const { return workers[static_cast<size_t>(machine)].get(); }
};

// A leader asks a life of another worker that its rank joins, in an epoch of the ranks.
struct RankAsked {
  uint64_t incarnation = 0;
  uint64_t deployment = 0;
  uint64_t loaded_epoch = 0;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  uint32_t ranks = 0;
};

// Of the one model.
inline constexpr char kWeightsDigest[] = "weights";
inline constexpr char kNumericsClass[] = "hash-1";

// What a frame carries, for the story: "step 7 of epoch 3 [release r2#8, r1#9 @32+4]".
std::string Show(const v1::StepFrame& frame);
std::string Show(const v1::StepResult& result);

// Workers are named by their machines, and have their names for addresses; "" is the coordinator.
std::string NodeName(Machine machine);
Machine MachineOf(const std::string& node);

// Frames of one deployment and epoch arrive in order.
uint64_t ChannelOf(uint64_t deployment, uint64_t epoch);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_CLUSTER_H_
