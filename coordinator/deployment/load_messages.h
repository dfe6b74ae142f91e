// The Load that the worker of a stage is sent: what of the model, under which plan, and to whom its
// stage passes on. Pure.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_LOAD_MESSAGES_H_
#define STRATA_COORDINATOR_DEPLOYMENT_LOAD_MESSAGES_H_

#include <cstdint>
#include <string>

#include "common/clock.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/deployment/deployment_options.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

// What is loaded. Nothing is owned.
struct LoadSubject {
  uint64_t deployment = 0;
  const DeployedModel* model = nullptr;
  const v1::Plan* plan = nullptr;
  const v1::LoadOptions* options = nullptr;  // Complete.
  const RotaryBlob* rotary = nullptr;
};

// Where the last stage answers, and where the others pass on.
struct NextHop {
  std::string node;  // "": the coordinator.
  uint64_t incarnation = 0;
  std::string address;  // host:port; the coordinator's is known to workers.
};

// Of the plan's stage `stage`, which one node computes, or without what a rank of it is told;
// links of it are given up after `link_timeout`.
v1::Load MakeStageLoad(const LoadSubject& subject, int stage, const NextHop& next,
                       uint32_t max_batch_items, nanoseconds link_timeout);

// Of a stage with one layer alone and KV for one sequence of `tokens`, of which it computes `rows`
// at once, as ComputeLayers has it.
v1::Load MakeLayerLoad(const LoadSubject& subject, uint32_t layer, uint32_t tokens, uint32_t rows);

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_LOAD_MESSAGES_H_
