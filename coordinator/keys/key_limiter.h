// What one key may do in how much time. Pure: time is handed in.
#ifndef STRATA_COORDINATOR_KEYS_KEY_LIMITER_H_
#define STRATA_COORDINATOR_KEYS_KEY_LIMITER_H_

#include <cstdint>
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

  // A request of so many prompt tokens begins, or RESOURCE_EXHAUSTED (KEY_REQUESTS_IN_FLIGHT,
  // KEY_REQUEST_RATE, KEY_TOKEN_RATE) with the limit and the fact "retry_after_ms"; then nothing
  // was counted. `name` is the key's, for the message. Tokens are charged when they are known: a
  // request begins while any are left, and what it takes beyond them delays the next ones. So none
  // is too long for a limit, and the limit holds on average.
  absl::Status Begin(const std::string& name, uint64_t prompt_tokens, TimePoint now);
  void Generated(uint64_t tokens, TimePoint now) { tokens_.Take(tokens, now); }
  // What Begin charged for a prompt that nobody computed.
  void GiveBack(uint64_t prompt_tokens) { tokens_.GiveBack(prompt_tokens); }
  void End() { --in_flight_; }
  uint32_t in_flight() const { return in_flight_; }

 private:
  const KeyLimits limits_;
  uint32_t in_flight_ = 0;
  MinuteBucket requests_;
  MinuteBucket tokens_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_KEYS_KEY_LIMITER_H_
