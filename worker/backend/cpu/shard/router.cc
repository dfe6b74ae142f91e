#include "worker/backend/cpu/shard/router.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/numerics/math.h"

namespace strata::cpu {
namespace {

bool IsNan(float x) { return x != x; }

bool Above(float a, float b) { return a > b || (IsNan(a) && !IsNan(b)); }

// The largest by `keys`, in descending order, of equal ones the lowest ids; their keys for weights.
void TakeLargest(std::span<const float> keys, std::span<Chosen> chosen) {
  for (uint32_t expert = 0; expert < keys.size(); ++expert) {
    const float key = keys[expert];
    if (expert >= chosen.size() && !Above(key, chosen.back().weight)) {
      continue;
    }
    size_t at = std::min<size_t>(expert, chosen.size() - 1);
    for (; at > 0 && Above(key, chosen[at - 1].weight); --at) {
      chosen[at] = chosen[at - 1];
    }
    chosen[at] = {expert, key};
  }
}

constexpr size_t kMostBest = 2;

// The sum of a group's largest keys.
float GroupSum(std::span<const float> keys, size_t best) {
  std::array<Chosen, kMostBest> largest;
  const std::span<Chosen> some = std::span(largest).first(best);
  TakeLargest(keys, some);
  float sum = some[0].weight;
  for (size_t i = 1; i < best; ++i) {
    sum += some[i].weight;
  }
  return sum;
}

// Makes keys of experts whose groups are not used the least.
void DropGroups(const RouterSpec& spec, std::span<float> keys) {
  const size_t size = keys.size() / spec.groups;
  std::array<float, kMostExpertGroups> sums;
  for (size_t group = 0; group < spec.groups; ++group) {
    sums[group] = GroupSum(keys.subspan(group * size, size), spec.group_best);
  }
  std::array<Chosen, kMostExpertGroups> used;
  TakeLargest(std::span(sums).first(spec.groups), std::span(used).first(spec.groups_used));
  for (uint32_t group = 0; group < spec.groups; ++group) {
    const bool keeps = std::any_of(used.begin(), used.begin() + spec.groups_used,
                                   [group](const Chosen& one) { return one.expert == group; });
    if (!keeps) {
      std::fill_n(keys.begin() + static_cast<ptrdiff_t>(group * size), size,
                  -std::numeric_limits<float>::infinity());
    }
  }
}

float Sigmoid(float x) { return 1.0f / (1.0f + ExpF32(-x)); }

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

void ChooseExperts(const RouterSpec& spec, std::span<const float> logits, std::span<Chosen> chosen,
                   std::span<const float> corrections, std::span<float> scratch) {
  const bool sigmoid = spec.scores == RouterScores::kSigmoid;
  std::span<const float> keys = logits;
  if (sigmoid || spec.groups > 1) {
    for (size_t expert = 0; expert < logits.size(); ++expert) {
      scratch[expert] = (sigmoid ? Sigmoid(logits[expert]) : logits[expert]) +
                        (spec.corrected ? corrections[expert] : 0.0f);
    }
    if (spec.groups > 1) {
      DropGroups(spec, scratch);
    }
    keys = scratch;
  }
  TakeLargest(keys, chosen);
  const float largest = logits[chosen.front().expert];
  std::sort(chosen.begin(), chosen.end(),
            [](const Chosen& a, const Chosen& b) { return a.expert < b.expert; });
  for (Chosen& one : chosen) {
    one.weight = sigmoid ? Sigmoid(logits[one.expert]) : ExpF32(logits[one.expert] - largest);
  }
  if (spec.scores == RouterScores::kSoftmax) {
    float sum = 0;
    for (const float logit : logits) {
      sum += ExpF32(logit - largest);
    }
    DivideBySum(sum, chosen);
  } else if (spec.scores == RouterScores::kSoftmaxOfChosen) {
    DivideBySum(SumOf(chosen), chosen);
  }
  if (spec.renormalize) {
    DivideBySum(SumOf(chosen), chosen);
  }
  if (spec.scale != 1) {
    for (Chosen& one : chosen) {
      one.weight *= spec.scale;
    }
  }
}

}  // namespace strata::cpu
