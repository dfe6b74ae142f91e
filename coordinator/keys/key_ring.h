// Who may use the cluster: API keys, kept as hashes, and what each may do.
#ifndef STRATA_COORDINATOR_KEYS_KEY_RING_H_
#define STRATA_COORDINATOR_KEYS_KEY_RING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/keys/key_limiter.h"
#include "coordinator/store/state_store.h"

namespace strata {

// One caller's right to what it asks for; empty where no key exists.
class Caller;

// A request of a caller from its admission to its end, which is this object's. Any thread.
class KeyUse {
 public:
  ~KeyUse();
  KeyUse(const KeyUse&) = delete;
  KeyUse& operator=(const KeyUse&) = delete;

  // Tokens of the answer, as they come or at the end.
  void Generated(uint64_t tokens, TimePoint now);
  // The cluster refused it: its prompt costs nothing.
  void Refused();

 private:
  friend class KeyRing;
  KeyUse(std::shared_ptr<Caller> caller, uint64_t prompt_tokens)
      : caller_(std::move(caller)), prompt_tokens_(prompt_tokens) {}
  const std::shared_ptr<Caller> caller_;  // Null: nothing is counted.
  const uint64_t prompt_tokens_;
};

struct NewKey {
  StoredKey key;
  std::string secret;  // Shown once: it is kept nowhere.
};

// Any thread. While no key was ever made everything is open; from the first one on, also when all
// are revoked, a key is needed.
class KeyRing {
 public:
  // `store` outlives the ring. `run_blocking` runs a task that waits for the disk on some other
  // thread; those that it was given end before the ring does.
  KeyRing(StateStore* store, std::function<void(std::function<void()>)> run_blocking);

  // Reads what the store has. Once, before anything else.
  absl::Status Load(TimePoint now) STRATA_EXCLUDES(mutex_);

  // A key of 256 random bits. INVALID_ARGUMENT (BAD_KEY_NAME), ALREADY_EXISTS (KEY_EXISTS); the
  // store's errors.
  absl::StatusOr<NewKey> Create(const std::string& name, const KeyLimits& limits,
                                uint64_t unix_seconds, TimePoint now) STRATA_EXCLUDES(mutex_);
  // From now on it opens nothing; requests in flight end as they would. NOT_FOUND; the store's
  // errors. Once more changes nothing.
  absl::StatusOr<StoredKey> Revoke(const std::string& name, uint64_t unix_seconds)
      STRATA_EXCLUDES(mutex_);
  std::vector<StoredKey> List() STRATA_EXCLUDES(mutex_);  // By name.

  // Who calls, by the value of an `authorization` header or metadata ("Bearer KEY"; "" if there is
  // none). UNAUTHENTICATED (KEY_MISSING, KEY_UNKNOWN, KEY_REVOKED). Null: no key is needed.
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view authorization,
                                                       uint64_t unix_seconds)
      STRATA_EXCLUDES(mutex_);
  // Begins a request of `caller` (null: always ok), or RESOURCE_EXHAUSTED as KeyLimiter says it.
  static absl::StatusOr<std::unique_ptr<KeyUse>> Admit(std::shared_ptr<Caller> caller,
                                                       uint64_t prompt_tokens, TimePoint now);
  // What makes a request id unique among those of all callers.
  static std::string Scoped(const Caller* caller, std::string_view request_id);

 private:
  void SaveUses() STRATA_EXCLUDES(mutex_, changes_);

  StateStore* const store_;
  const std::function<void(std::function<void()>)> run_blocking_;
  Mutex changes_;  // Held over a change of the store, which mutex_ is not.
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Caller>> by_name_ STRATA_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::shared_ptr<Caller>> by_hash_ STRATA_GUARDED_BY(mutex_);
  bool saving_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t saved_at_ STRATA_GUARDED_BY(mutex_) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_KEYS_KEY_RING_H_
