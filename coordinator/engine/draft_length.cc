#include "coordinator/engine/draft_length.h"

#include <algorithm>
#include <cstddef>

namespace strata {
namespace {

// What a step leaves of the weight of those before it, and a step without drafts.
constexpr double kStepKeeps = 0.9;
constexpr double kIdleStepKeeps = 0.98;
// Tokens that what was assumed before counts as.
constexpr double kPriorTokens = 1;
// A token that is as unlikely as that is never worth its row.
constexpr double kLeastChance = 0.02;

// A row more for one of the offers.
struct Row {
  size_t offer = 0;
  double gain = 0;  // Tokens that it is expected to add.
};

std::vector<Row> RowsByGain(std::span<const DraftOffer> offers) {
  std::vector<Row> rows;
  for (size_t i = 0; i < offers.size(); ++i) {
    const double chance = std::clamp(offers[i].chance, 0.0, 1.0);
    double gain = 1;
    for (uint32_t row = 0; row < offers[i].most; ++row) {
      gain *= row < offers[i].certain ? 1 : chance;
      if (gain < kLeastChance) {
        break;
      }
      rows.push_back({i, gain});
    }
  }
  // Of one offer none overtakes the row before it, whose gain is at least as large.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.gain > b.gain; });
  return rows;
}

// Whether none of the sessions, which are expected to have `own` tokens by a step that takes
// `slower` times as long as one without drafts, is too late then.
bool NobodyIsLate(std::span<const DraftOffer> offers, const std::vector<double>& own,
                  double slower) {
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] < kLeastOfOwnPace * slower && own[i] + offers[i].won + kMostLost < slower) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<uint32_t> DraftLengths(std::span<const DraftOffer> offers, uint32_t most_rows,
                                   const std::function<double(uint32_t)>& cycle_ms) {
  std::vector<uint32_t> lengths(offers.size(), 0);
  std::vector<Row> rows = RowsByGain(offers);
  rows.resize(std::min<size_t>(rows.size(), most_rows));
  if (rows.empty()) {
    return lengths;
  }
  const double plain_ms = cycle_ms(0);
  const auto sessions = static_cast<double>(offers.size());
  double expected = sessions;
  std::vector<double> own(offers.size(), 1);  // Expected tokens of each.
  double best_rate = kLeastDraftGain * sessions;
  size_t best = 0;
  for (size_t count = 1; count <= rows.size(); ++count) {
    const Row& row = rows[count - 1];
    expected += row.gain;
    own[row.offer] += row.gain;
    const double slower =
        plain_ms > 0 ? cycle_ms(static_cast<uint32_t>(count)) / plain_ms : 1;  // By this factor.
    const double rate = expected / slower;
    if (rate > best_rate && NobodyIsLate(offers, own, slower)) {
      best_rate = rate;
      best = count;
    }
  }
  for (size_t i = 0; i < best; ++i) {
    ++lengths[rows[i].offer];
  }
  return lengths;
}

void DraftChance::Note(uint32_t drafted, uint32_t accepted) {
  right_ = right_ * kStepKeeps + accepted;
  judged_ = judged_ * kStepKeeps + std::min(drafted, accepted + 1);
}

void DraftChance::Forget() {
  right_ *= kIdleStepKeeps;
  judged_ *= kIdleStepKeeps;
}

double DraftChance::value() const {
  return (right_ + kPriorTokens * prior_) / (judged_ + kPriorTokens);
}

}  // namespace strata
