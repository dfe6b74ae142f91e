#include "coordinator/keys/key_limiter.h"

#include <algorithm>
#include <cmath>

#include "common/status.h"

namespace strata {
namespace {

constexpr double kMinuteNs = 60e9;
// When requests in flight will end is a guess, which is kept within these.
constexpr nanoseconds kSoonest = std::chrono::seconds(1);
constexpr nanoseconds kLatest = std::chrono::seconds(60);
// How much the newest request counts in how long they take.
constexpr double kNewest = 0.2;

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

absl::Status KeyLimiter::Check(const std::string& key, bool replaces, TimePoint now) {
  const size_t others = in_flight() - (replaces && in_flight() > 0 ? 1 : 0);
  if (limits_.requests_in_flight > 0 && others >= limits_.requests_in_flight) {
    return Refused(
        "KEY_REQUESTS_IN_FLIGHT", key + " has " + std::to_string(others) + " requests in flight",
        "requests_in_flight=" + std::to_string(limits_.requests_in_flight), NextEnd(now));
  }
  if (const nanoseconds wait = requests_.Until(1, now); wait.count() > 0) {
    return Refused("KEY_REQUEST_RATE", key + " has used up its requests per minute",
                   "requests_per_minute=" + std::to_string(limits_.requests_per_minute), wait);
  }
  if (const nanoseconds wait = tokens_.Until(1, now); wait.count() > 0) {
    return Refused("KEY_TOKEN_RATE", key + " has used up its tokens per minute",
                   "tokens_per_minute=" + std::to_string(limits_.tokens_per_minute), wait);
  }
  return absl::OkStatus();
}

absl::Status KeyLimiter::Begin(const std::string& key, bool replaces, TimePoint now) {
  RETURN_IF_ERROR(Check(key, replaces, now));
  begun_.insert(now);
  requests_.Take(1, now);
  return absl::OkStatus();
}

void KeyLimiter::End(TimePoint begun, TimePoint now) {
  begun_.erase(begun_.find(begun));
  const double took = std::max(1.0, static_cast<double>((now - begun).count()));
  mean_ns_ = mean_ns_ == 0 ? took : mean_ns_ + kNewest * (took - mean_ns_);
}

nanoseconds KeyLimiter::NextEnd(TimePoint now) const {
  // The oldest is the next, when it has taken as long as requests do. Before any has ended: when it
  // has taken twice as long as it has until now.
  const nanoseconds age = now - *begun_.begin();
  const nanoseconds left = mean_ns_ == 0 ? age : nanoseconds(static_cast<int64_t>(mean_ns_)) - age;
  return std::clamp(left, kSoonest, kLatest);
}

}  // namespace strata
