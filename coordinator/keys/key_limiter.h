// What one key may do in how much time. Pure: time is handed in.
#ifndef STRATA_COORDINATOR_KEYS_KEY_LIMITER_H_
#define STRATA_COORDINATOR_KEYS_KEY_LIMITER_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/store/stored_key.h"

namespace strata {

// A store of what may be used, filled at an even rate up to a minute's worth.
class MinuteBucket {
 public:
  // Full at `now`. 0: no limit.
  MinuteBucket(uint64_t per_minute, TimePoint now);

  // Takes `amount`, which may leave less than nothing: then nothing is there until that is paid.
  void Take(uint64_t amount, TimePoint now);
  void GiveBack(uint64_t amount);
  // How long until there is at least `amount`; 0: now.
  nanoseconds Until(double amount, TimePoint now);

 private:
  void Fill(TimePoint now);
  const double per_minute_;
  double level_;
  TimePoint filled_;
};

// One thread at a time.
class KeyLimiter {
 public:
  KeyLimiter(const KeyLimits& limits, TimePoint now);

  // A request begins, or RESOURCE_EXHAUSTED (KEY_REQUESTS_IN_FLIGHT, KEY_REQUEST_RATE,
  // KEY_TOKEN_RATE) with the limit and the fact "retry_after_ms"; then nothing was counted. `key`
  // names it in the message. `replaces`: it takes the place of one in flight, and needs no other.
  // Tokens are charged when they are known: a request begins while any are left, and what it takes
  // beyond them delays the next ones. So none is too long for a limit, and the limit holds on
  // average.
  absl::Status Begin(const std::string& key, bool replaces, TimePoint now);
  // What Begin would say; nothing is counted.
  absl::Status Check(const std::string& key, bool replaces, TimePoint now);
  // Of its prompt and of its answer.
  void Charge(uint64_t tokens, TimePoint now) { tokens_.Take(tokens, now); }
  // What was charged for a prompt that nobody computed.
  void GiveBack(uint64_t tokens) { tokens_.GiveBack(tokens); }
  // `begun`: the time of its Begin.
  void End(TimePoint begun, TimePoint now);
  size_t in_flight() const { return begun_.size(); }

 private:
  // How long until one of those in flight will have ended, as far as can be told.
  nanoseconds NextEnd(TimePoint now) const;

  const KeyLimits limits_;
  std::multiset<TimePoint> begun_;  // When those in flight did.
  double mean_ns_ = 0;              // How long requests take, newer ones counting more. 0: unknown.
  MinuteBucket requests_;
  MinuteBucket tokens_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_KEYS_KEY_LIMITER_H_
