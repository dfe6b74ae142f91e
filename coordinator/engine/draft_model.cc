#include "coordinator/engine/draft_model.h"

#include <algorithm>
#include <utility>

#include "coordinator/engine/draft_length.h"

namespace strata {
namespace {

// What the newest answer counts among those before it.
constexpr double kNewest = 0.2;
// As long as their time is not known.
constexpr uint32_t kFirstGuesses = 4;
// Guesses that take several times as long as they did are not waited for.
constexpr double kPatienceFactor = 3;
constexpr nanoseconds kLeastPatience = milliseconds(2);
constexpr nanoseconds kFirstPatience = milliseconds(200);
// A model that does not answer is asked again after this.
constexpr nanoseconds kAskAgain = std::chrono::seconds(1);

}  // namespace

void GuessPace::Observe(uint32_t guesses, nanoseconds took) {
  if (guesses == 0) {
    return;
  }
  const double ms = ToMs(took) / guesses;
  guess_ms_ = guess_ms_ == 0 ? ms : guess_ms_ + kNewest * (ms - guess_ms_);
}

void GuessPace::NoteNone(TimePoint now) { none_until_ = now + kAskAgain; }

uint32_t GuessPace::Worth(double chance, uint32_t most,
                          const std::function<double(uint32_t)>& cycle_ms) const {
  const double plain_ms = cycle_ms(0);
  if (guess_ms_ == 0 || plain_ms <= 0) {
    return std::min(most, kFirstGuesses);
  }
  double expected = 1;
  double gain = 1;
  double best_rate = kLeastDraftGain / plain_ms;
  uint32_t best = 0;
  for (uint32_t count = 1; count <= most; ++count) {
    gain *= std::clamp(chance, 0.0, 1.0);
    expected += gain;
    const double rate = expected / (cycle_ms(count) + count * guess_ms_);
    if (rate > best_rate) {
      best_rate = rate;
      best = count;
    }
  }
  return best;
}

nanoseconds GuessPace::Patience(uint32_t guesses) const {
  if (guess_ms_ == 0) {
    return kFirstPatience;
  }
  const auto expected = nanoseconds(static_cast<int64_t>(guess_ms_ * guesses * 1e6));
  return std::max(kLeastPatience,
                  nanoseconds(static_cast<int64_t>(kPatienceFactor * expected.count())));
}

void SessionGuesses::Asked(uint32_t known, uint32_t most, TimePoint now, TimePoint until) {
  known_ = known;
  most_ = most;
  asked_at_ = now;
  until_ = until;
}

std::optional<std::pair<uint32_t, TimePoint>> SessionGuesses::Answered() {
  const std::optional<TimePoint> asked = std::exchange(asked_at_, std::nullopt);
  return asked.has_value() ? std::optional(std::pair(most_, *asked)) : std::nullopt;
}

std::optional<TimePoint> SessionGuesses::AwaitedUntil(uint32_t known, TimePoint now) const {
  return asked_at_.has_value() && known == known_ && now < until_ ? std::optional(until_)
                                                                  : std::nullopt;
}

}  // namespace strata
