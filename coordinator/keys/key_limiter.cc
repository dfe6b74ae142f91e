#include "coordinator/keys/key_limiter.h"

#include <algorithm>
#include <cmath>

#include "common/status.h"

namespace strata {
namespace {

constexpr double kMinuteNs = 60e9;
// When one of those in flight will end is not known.
constexpr nanoseconds kAskAgain = std::chrono::seconds(1);

absl::Status Refused(const char* reason, const std::string& message, const std::string& limit,
                     nanoseconds retry_after) {
  const auto ms = static_cast<uint64_t>(std::ceil(ToMs(retry_after)));
  return Error(absl::StatusCode::kResourceExhausted, reason, message)
      .Limit(limit)
      .Fact("retry_after_ms", std::max<uint64_t>(ms, 1))
      .Hint("try again in " + std::to_string((ms + 999) / 1000) + " s");
}

}  // namespace

MinuteBucket::MinuteBucket(uint64_t per_minute, TimePoint now)
    : per_minute_(static_cast<double>(per_minute)), level_(per_minute_), filled_(now) {}

void MinuteBucket::Fill(TimePoint now) {
  if (now > filled_) {
    const double grown = static_cast<double>((now - filled_).count()) / kMinuteNs * per_minute_;
    level_ = std::min(per_minute_, level_ + grown);
    filled_ = now;
  }
}

void MinuteBucket::Take(uint64_t amount, TimePoint now) {
  Fill(now);
  level_ -= static_cast<double>(amount);
}

void MinuteBucket::GiveBack(uint64_t amount) {
  level_ = std::min(per_minute_, level_ + static_cast<double>(amount));
}

nanoseconds MinuteBucket::Until(double amount, TimePoint now) {
  if (per_minute_ == 0) {
    return nanoseconds(0);
  }
  Fill(now);
  const double lacking = amount - level_;
  return lacking <= 0 ? nanoseconds(0)
                      : nanoseconds(static_cast<int64_t>(
                            std::min(std::ceil(lacking / per_minute_ * kMinuteNs), 1e18)));
}

KeyLimiter::KeyLimiter(const KeyLimits& limits, TimePoint now)
    : limits_(limits),
      requests_(limits.requests_per_minute, now),
      tokens_(limits.tokens_per_minute, now) {}

absl::Status KeyLimiter::Begin(const std::string& name, uint64_t prompt_tokens, TimePoint now) {
  const std::string key = "key '" + name + "' ";
  if (limits_.requests_in_flight > 0 && in_flight_ >= limits_.requests_in_flight) {
    return Refused("KEY_REQUESTS_IN_FLIGHT",
                   key + "has " + std::to_string(in_flight_) + " requests in flight",
                   "requests_in_flight=" + std::to_string(limits_.requests_in_flight), kAskAgain);
  }
  if (const nanoseconds wait = requests_.Until(1, now); wait.count() > 0) {
    return Refused("KEY_REQUEST_RATE", key + "has used up its requests per minute",
                   "requests_per_minute=" + std::to_string(limits_.requests_per_minute), wait);
  }
  if (const nanoseconds wait = tokens_.Until(1, now); wait.count() > 0) {
    return Refused("KEY_TOKEN_RATE", key + "has used up its tokens per minute",
                   "tokens_per_minute=" + std::to_string(limits_.tokens_per_minute), wait);
  }
  ++in_flight_;
  requests_.Take(1, now);
  tokens_.Take(prompt_tokens, now);
  return absl::OkStatus();
}

}  // namespace strata
