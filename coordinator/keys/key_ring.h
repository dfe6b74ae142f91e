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
#include "coordinator/keys/caller.h"
#include "coordinator/store/state_store.h"

namespace strata {

struct KeySpec {
  std::string name;  // "" or 1..64 letters, digits and -_.@; several keys may share one.
  bool admin = false;
  KeyLimits limits;
};

struct NewKey {
  StoredKey key;
  std::string secret;  // Shown once: it is kept nowhere.
};

// Which calls of operators a key that is no admin key opens.
enum class OperatorCall {
  kAny,  // While there is an admin key: none.
  kOwn,  // Those that then are about the caller's own requests, or about models.
};

// Any thread. While no key was ever made everything is open; from the first one on, also when all
// are revoked, a key is needed for requests. Operators need one from the first admin key on.
class KeyRing {
 public:
  // `store` outlives the ring. `run_blocking` runs a task that waits for the disk on some other
  // thread; those that it was given end before the ring does.
  KeyRing(StateStore* store, std::function<void(std::function<void()>)> run_blocking);

  // Reads what the store has. Once, before anything else.
  absl::Status Load(TimePoint now) STRATA_EXCLUDES(mutex_);
  // Writes when keys were last used. From then on nothing is given to `run_blocking`.
  void Close() STRATA_EXCLUDES(mutex_);

  // A key of 256 random bits, in force when this returns. INVALID_ARGUMENT (BAD_KEY_NAME); the
  // store's errors.
  absl::StatusOr<NewKey> Create(const KeySpec& spec, uint64_t unix_seconds, TimePoint now)
      STRATA_EXCLUDES(mutex_);
  // From now on it opens nothing; requests in flight end as they would. NOT_FOUND (KEY_NOT_FOUND);
  // FAILED_PRECONDITION (LAST_ADMIN_KEY): nobody could administrate; the store's errors. Once more
  // changes nothing.
  absl::StatusOr<StoredKey> Revoke(const std::string& id, uint64_t unix_seconds)
      STRATA_EXCLUDES(mutex_);
  std::vector<StoredKey> List() STRATA_EXCLUDES(mutex_);  // Oldest first.
  // The name of a key; "" if it has none.
  std::string NameOf(std::string_view id) STRATA_EXCLUDES(mutex_);
  bool empty() STRATA_EXCLUDES(mutex_);
  // Whether operators need a key.
  bool HasAdmin() STRATA_EXCLUDES(mutex_);

  // Who calls, by the value of an `authorization` header or metadata ("Bearer KEY"; "" if there is
  // none). UNAUTHENTICATED (KEY_MISSING, KEY_UNKNOWN, KEY_REVOKED). Null: no key is needed.
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view authorization,
                                                       uint64_t unix_seconds)
      STRATA_EXCLUDES(mutex_);
  // Likewise for a call of operators. Null: an operator; else the call may touch only what is the
  // caller's own. PERMISSION_DENIED (KEY_NOT_ADMIN); the errors of Authenticate.
  absl::StatusOr<std::shared_ptr<Caller>> AuthenticateOperator(std::string_view authorization,
                                                               OperatorCall call,
                                                               uint64_t unix_seconds)
      STRATA_EXCLUDES(mutex_);

 private:
  struct Entry {
    StoredKey key;
    std::shared_ptr<Caller> caller;
    bool use_unsaved = false;
  };
  void Add(const StoredKey& key, TimePoint now) STRATA_REQUIRES(mutex_);
  bool IsTaken(const std::string& id) STRATA_EXCLUDES(mutex_);
  int GoodAdmins() const STRATA_REQUIRES(mutex_);
  void SaveUses() STRATA_EXCLUDES(mutex_, changes_);

  StateStore* const store_;
  const std::function<void(std::function<void()>)> run_blocking_;
  Mutex changes_;  // Held over a change of the store, which mutex_ is not.
  Mutex mutex_;
  std::map<std::string, Entry, std::less<>> keys_ STRATA_GUARDED_BY(mutex_);        // By id.
  std::unordered_map<std::string, std::string> by_hash_ STRATA_GUARDED_BY(mutex_);  // Ids.
  bool saving_ STRATA_GUARDED_BY(mutex_) = false;
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t saved_at_ STRATA_GUARDED_BY(mutex_) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_KEYS_KEY_RING_H_
