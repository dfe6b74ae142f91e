#include "worker/backend/cpu/router.h"

#include <algorithm>

#include "common/numerics/math.h"

namespace strata::cpu {
namespace {

bool IsNan(float x) { return x != x; }

bool Above(float a, float b) { return a > b || (IsNan(a) && !IsNan(b)); }

// The largest logits, in descending order, of equal ones the lowest ids.
void TakeLargest(std::span<const float> logits, std::span<Chosen> chosen) {
  for (uint32_t expert = 0; expert < logits.size(); ++expert) {
    const float logit = logits[expert];
    if (expert >= chosen.size() && !Above(logit, chosen.back().weight)) {
      continue;
    }
    size_t at = std::min<size_t>(expert, chosen.size() - 1);
    for (; at > 0 && Above(logit, chosen[at - 1].weight); --at) {
      chosen[at] = chosen[at - 1];
    }
    chosen[at] = {expert, logit};
  }
}

void DivideBySum(float sum, std::span<Chosen> chosen) {
  for (Chosen& one : chosen) {
    one.weight /= sum;
  }
}

float SumOf(std::span<const Chosen> chosen) {
  float sum = 0;
  for (const Chosen& one : chosen) {
    sum += one.weight;
  }
  return sum;
}

}  // namespace

void ChooseExperts(const RouterSpec& spec, std::span<const float> logits,
                   std::span<Chosen> chosen) {
  TakeLargest(logits, chosen);
  const float largest = chosen.front().weight;
  std::sort(chosen.begin(), chosen.end(),
            [](const Chosen& a, const Chosen& b) { return a.expert < b.expert; });
  for (Chosen& one : chosen) {
    one.weight = ExpF32(one.weight - largest);
  }
  float sum = 0;
  if (spec.scores == RouterScores::kSoftmax) {
    for (const float logit : logits) {
      sum += ExpF32(logit - largest);
    }
  } else {
    sum = SumOf(chosen);
  }
  DivideBySum(sum, chosen);
  if (spec.renormalize) {
    DivideBySum(SumOf(chosen), chosen);
  }
}

}  // namespace strata::cpu
