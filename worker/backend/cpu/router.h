// Which experts compute a row, and what each counts.
#ifndef STRATA_WORKER_BACKEND_CPU_ROUTER_H_
#define STRATA_WORKER_BACKEND_CPU_ROUTER_H_

#include <cstdint>
#include <span>

#include "common/expert_spec.h"

namespace strata::cpu {

struct Chosen {
  uint32_t expert = 0;
  float weight = 0;
};

// Fills `chosen`, of spec.used, by ascending expert, from the logits of one row, one an expert and
// at least as many. Numerics: e = exp(logit - largest), of all experts or of those chosen; weight =
// e / sum of e by ascending id; renormalized, each by the sum of those chosen, likewise. A logit
// that is no number counts as the largest, so that nothing finite comes of it.
void ChooseExperts(const RouterSpec& spec, std::span<const float> logits, std::span<Chosen> chosen);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_ROUTER_H_
