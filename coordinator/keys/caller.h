// Who calls, and what their requests in flight use of their key's limits.
#ifndef STRATA_COORDINATOR_KEYS_CALLER_H_
#define STRATA_COORDINATOR_KEYS_CALLER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/keys/key_limiter.h"
#include "coordinator/store/stored_key.h"

namespace strata {

// The holder of one key, whether it is good still or not. Any thread.
class Caller {
 public:
  Caller(const StoredKey& key, TimePoint now);

  const std::string& id() const { return id_; }
  const std::string& name() const { return name_; }
  bool admin() const { return admin_; }
  // Whether its requests may ask for this: PERMISSION_DENIED (KEY_PRIORITY, KEY_GUARANTEED).
  absl::Status CheckClaims(int32_t priority, bool guaranteed) const;

 private:
  friend class KeyUse;

  std::string Title() const;  // For messages.

  absl::Status Check(const std::string& request_id, bool replace, TimePoint now)
      STRATA_EXCLUDES(mutex_);
  absl::Status Begin(const std::string& request_id, bool replace, TimePoint now)
      STRATA_EXCLUDES(mutex_);
  void Charge(uint64_t tokens, TimePoint now) STRATA_EXCLUDES(mutex_);
  void GiveBack(uint64_t tokens) STRATA_EXCLUDES(mutex_);
  void End(const std::string& request_id, TimePoint begun, TimePoint now) STRATA_EXCLUDES(mutex_);

  const std::string id_;
  const std::string name_;
  const bool admin_;
  const KeyLimits limits_;
  Mutex mutex_;
  KeyLimiter limiter_ STRATA_GUARDED_BY(mutex_);
  std::multiset<std::string> in_flight_ STRATA_GUARDED_BY(mutex_);  // Request ids.
};

// One call of a client, with all the answers that it asks for: a request as limits count them. It
// is in flight from the first Admit until this ends. Any thread.
class KeyUse {
 public:
  // Of nobody (null), nothing is counted.
  explicit KeyUse(std::shared_ptr<Caller> caller) : caller_(std::move(caller)) {}
  ~KeyUse();
  KeyUse(const KeyUse&) = delete;
  KeyUse& operator=(const KeyUse&) = delete;

  const Caller* caller() const { return caller_.get(); }

  // What Admit would say, before the prompt's tokens are known: nothing is counted.
  absl::Status Check(const std::string& request_id, bool replace, TimePoint now)
      STRATA_EXCLUDES(mutex_);
  // Before an answer to a prompt of so many tokens is computed: begins the request unless it has
  // begun, or RESOURCE_EXHAUSTED as KeyLimiter::Begin says it. `replace`: it takes the place of the
  // caller's request of that id, if there is one.
  absl::Status Admit(const std::string& request_id, bool replace, uint64_t prompt_tokens,
                     TimePoint now) STRATA_EXCLUDES(mutex_);
  // Tokens of an answer, as they come.
  void Generated(uint64_t tokens, TimePoint now) STRATA_EXCLUDES(mutex_);
  // The cluster refused it: its prompt costs nothing.
  void GiveBack(uint64_t prompt_tokens);

 private:
  const std::shared_ptr<Caller> caller_;
  Mutex mutex_;
  bool begun_ STRATA_GUARDED_BY(mutex_) = false;
  std::string request_id_ STRATA_GUARDED_BY(mutex_);
  TimePoint begun_at_ STRATA_GUARDED_BY(mutex_);
  TimePoint newest_ STRATA_GUARDED_BY(mutex_);  // The latest time that it was told.
};

// What makes a request id unique among those of all callers; null: of those without a key.
std::string ScopedId(const Caller* caller, std::string_view request_id);
// The id of the key in it; "" if it has none.
std::string_view KeyOfScopedId(std::string_view scoped);

}  // namespace strata

#endif  // STRATA_COORDINATOR_KEYS_CALLER_H_
