// Which experts compute a row, and what each counts.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_ROUTER_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_ROUTER_H_

#include <cstdint>
#include <span>

#include "common/model/expert_spec.h"

namespace strata::cpu {

struct Chosen {
  uint32_t expert = 0;
  float weight = 0;
};

// Fills `chosen`, of spec.used, by ascending expert, from the logits of one row, one an expert and
// at least as many. Numerics: e = exp(logit - largest), of all experts or of those chosen; weight =
// e / sum of e by ascending id; of sigmoids 1 / (1 + exp(-logit)); renormalized, each by the sum of
// those chosen, likewise; times the scale, where it is not 1. What chooses is the logit, or the
// sigmoid + its correction; a group's sum begins with its largest. A logit that is no number
// counts as the largest, so that nothing finite comes of it.
// `corrections`: one an expert where spec.corrected. `scratch`: as many floats as logits, where
// there are groups or sigmoids.
void ChooseExperts(const RouterSpec& spec, std::span<const float> logits, std::span<Chosen> chosen,
                   std::span<const float> corrections = {}, std::span<float> scratch = {});

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_ROUTER_H_
