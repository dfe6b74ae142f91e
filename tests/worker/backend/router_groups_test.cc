// Routers that choose within groups of experts, and by sigmoids with corrections, against a plain
// program of DeepSeek's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "worker/backend/cpu/shard/router.h"

namespace strata::cpu {
namespace {

std::vector<double> Scores(const RouterSpec& spec, const std::vector<float>& logits) {
  std::vector<double> scores;
  double sum = 0;
  for (const float logit : logits) {
    const double e = std::exp(double{logit});
    scores.push_back(spec.scores == RouterScores::kSigmoid ? e / (1 + e) : e);
    sum += e;
  }
  for (double& score : scores) {
    score /= spec.scores == RouterScores::kSigmoid ? 1 : sum;
  }
  return scores;
}

std::vector<uint32_t> Largest(const std::vector<double>& values, size_t count) {
  std::vector<uint32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](uint32_t a, uint32_t b) { return values[a] > values[b]; });
  ids.resize(count);
  return ids;
}

// Ids ascending, with weights.
std::vector<std::pair<uint32_t, double>> Plain(const RouterSpec& spec,
                                               const std::vector<float>& logits,
                                               const std::vector<float>& corrections) {
  const std::vector<double> scores = Scores(spec, logits);
  std::vector<double> keys = scores;
  for (size_t i = 0; i < corrections.size(); ++i) {
    keys[i] += corrections[i];
  }
  const size_t size = keys.size() / spec.groups;
  std::vector<double> sums;
  for (size_t group = 0; group < spec.groups; ++group) {
    std::vector<double> own(keys.begin() + group * size, keys.begin() + (group + 1) * size);
    std::sort(own.rbegin(), own.rend());
    sums.push_back(std::accumulate(own.begin(), own.begin() + spec.group_best, 0.0));
  }
  const std::vector<uint32_t> used = Largest(sums, spec.groups_used);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (std::find(used.begin(), used.end(), i / size) == used.end()) {
      keys[i] = -std::numeric_limits<double>::infinity();
    }
  }
  std::vector<uint32_t> ids = Largest(keys, spec.used);
  std::sort(ids.begin(), ids.end());
  double sum = 0;
  for (const uint32_t id : ids) {
    sum += scores[id];
  }
  std::vector<std::pair<uint32_t, double>> out;
  for (const uint32_t id : ids) {
    out.emplace_back(id, scores[id] / (spec.renormalize ? sum : 1) * spec.scale);
  }
  return out;
}

void ExpectPlain(const RouterSpec& spec, uint32_t experts) {
  std::mt19937 random(experts);
  std::normal_distribution<float> normal(0, 2);
  for (int i = 0; i < 500; ++i) {
    std::vector<float> logits(experts);
    std::vector<float> corrections(spec.corrected ? experts : 0);
    std::generate(logits.begin(), logits.end(), [&] { return normal(random); });
    std::generate(corrections.begin(), corrections.end(), [&] { return 0.1f * normal(random); });
    std::vector<Chosen> chosen(spec.used);
    std::vector<float> scratch(experts);
    ChooseExperts(spec, logits, chosen, corrections, scratch);
    const auto expected = Plain(spec, logits, corrections);
    for (size_t k = 0; k < chosen.size(); ++k) {
      ASSERT_EQ(chosen[k].expert, expected[k].first) << i;
      ASSERT_NEAR(chosen[k].weight, expected[k].second, 1e-6 * spec.scale) << i;
    }
  }
}

TEST(RouterGroups, OfTheThirdVersionGoByTheirTwoBestCorrectedSigmoids) {
  ExpectPlain({.used = 3,
               .scores = RouterScores::kSigmoid,
               .renormalize = true,
               .corrected = true,
               .groups = 4,
               .groups_used = 2,
               .group_best = 2,
               .scale = 2.5f},
              8);
  ExpectPlain({.used = 8,
               .scores = RouterScores::kSigmoid,
               .renormalize = true,
               .corrected = true,
               .groups = 8,
               .groups_used = 4,
               .group_best = 2,
               .scale = 2.5f},
              256);
}

TEST(RouterGroups, OfTheSecondVersionGoByTheirBestExpert) {
  ExpectPlain({.used = 6,
               .scores = RouterScores::kSoftmax,
               .groups = 8,
               .groups_used = 3,
               .group_best = 1,
               .scale = 16},
              160);
}

// All corrected scores below zero: what is not in a used group is still not chosen.
TEST(RouterGroups, NeverGiveAnExpertOfAnUnusedGroup) {
  const RouterSpec spec{.used = 2,
                        .scores = RouterScores::kSigmoid,
                        .corrected = true,
                        .groups = 2,
                        .groups_used = 1,
                        .group_best = 2};
  const std::vector<float> logits = {0, 0, 0, 0};
  const std::vector<float> corrections = {-3, -3, -2, -4};
  std::vector<Chosen> chosen(2);
  std::vector<float> scratch(4);
  ChooseExperts(spec, logits, chosen, corrections, scratch);
  // Sums of -5 both: the first group.
  EXPECT_EQ(chosen[0].expert, 0u);
  EXPECT_EQ(chosen[1].expert, 1u);
  EXPECT_EQ(chosen[0].weight, 0.5f);
}

}  // namespace
}  // namespace strata::cpu
