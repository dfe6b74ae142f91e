// Registered models of public sizes, whose weights nobody has, and plans of them.
#ifndef STRATA_TESTS_COORDINATOR_PLANNER_PUBLIC_MODEL_H_
#define STRATA_TESTS_COORDINATOR_PLANNER_PUBLIC_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coordinator/service/request/model_runtime.h"

namespace strata::testing {

// A model of this configuration. `has` says which of the tensors that other formats have there are
// ("....weight_scale_inv", "..._blocks"); those of floats are in bfloat16, but for routers'
// corrections, which are float32.
ModelRuntime PublicModel(const std::string& name, const std::string& config,
                         const std::function<bool(const std::string&)>& has = nullptr);

// Two sessions of 4096 tokens, KV in float16.
v1::LoadOptions PublicOptions();

// What a stage with a layer, or with an end, holds for it.
struct PublicSizes {
  std::vector<uint64_t> layers;
  uint64_t embedding = 0;
  uint64_t head = 0;
  uint64_t kv_of_layer = 0;  // For one token.
  // Tokens that layers look back at, their own included, but for each `full_every`-th, which sees
  // all; 0: all layers do, and none does.
  uint32_t window = 0;
  uint32_t full_every = 0;
};

// Fails unless the planner counts just that, and a plan of two halves grants just that.
void ExpectSizes(const ModelRuntime& model, const PublicSizes& sizes);
void ExpectPlan(const ModelRuntime& model, const PublicSizes& sizes);

}  // namespace strata::testing

#endif  // STRATA_TESTS_COORDINATOR_PLANNER_PUBLIC_MODEL_H_
