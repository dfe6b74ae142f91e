#include "coordinator/keys/key_ring.h"

#include <openssl/rand.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr char kPrefix[] = "strata-";
constexpr size_t kMaxNameBytes = 64;
// When a key was last used is written this often at most.
constexpr uint64_t kSaveUsesEverySeconds = 60;

absl::Status Unauthenticated(const char* reason, const std::string& message) {
  return Error(absl::StatusCode::kUnauthenticated, reason, message)
      .Hint(
          "send `authorization: Bearer KEY` (STRATA_API_KEY for strata and the SDK) with a key of "
          "`strata key create`");
}

bool IsKeyName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
         });
}

std::string DrawSecret() {
  Sha256Bytes bytes{};
  STRATA_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return kPrefix + ToHex(bytes);
}

// The key of "Bearer KEY"; "" if it is none. The scheme's case does not matter.
std::string_view BearerOf(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() < kBearer.size() ||
      !std::equal(kBearer.begin(), kBearer.end(), authorization.begin(), [](char a, char b) {
        return a == std::tolower(static_cast<unsigned char>(b));
      })) {
    return "";
  }
  authorization.remove_prefix(kBearer.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  while (!authorization.empty() && authorization.back() == ' ') authorization.remove_suffix(1);
  return authorization;
}

}  // namespace

class Caller {
 public:
  Caller(StoredKey stored, TimePoint now)
      : key(std::move(stored)), name_(key.name), limiter_(key.limits, now) {}

  absl::Status Begin(uint64_t prompt_tokens, TimePoint now) STRATA_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return limiter_.Begin(name_, prompt_tokens, now);
  }
  void Generated(uint64_t tokens, TimePoint now) STRATA_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    limiter_.Generated(tokens, now);
  }
  void GiveBack(uint64_t prompt_tokens) STRATA_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    limiter_.GiveBack(prompt_tokens);
  }
  void End() STRATA_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    limiter_.End();
  }

  const std::string& scope() const { return name_; }

  // The ring's mutex guards these.
  StoredKey key;
  bool use_unsaved = false;

 private:
  const std::string name_;
  Mutex mutex_;
  KeyLimiter limiter_ STRATA_GUARDED_BY(mutex_);
};

KeyUse::~KeyUse() {
  if (caller_ != nullptr) {
    caller_->End();
  }
}

void KeyUse::Generated(uint64_t tokens, TimePoint now) {
  if (caller_ != nullptr && tokens > 0) {
    caller_->Generated(tokens, now);
  }
}

void KeyUse::Refused() {
  if (caller_ != nullptr) {
    caller_->GiveBack(prompt_tokens_);
  }
}

KeyRing::KeyRing(StateStore* store, std::function<void(std::function<void()>)> run_blocking)
    : store_(store), run_blocking_(std::move(run_blocking)) {}

absl::Status KeyRing::Load(TimePoint now) {
  ASSIGN_OR_RETURN(const std::vector<StoredKey> stored, store_->ListKeys());
  MutexLock lock(&mutex_);
  for (const StoredKey& key : stored) {
    const auto caller = std::make_shared<Caller>(key, now);
    by_name_[key.name] = caller;
    by_hash_[key.hash] = caller;
  }
  return absl::OkStatus();
}

absl::StatusOr<NewKey> KeyRing::Create(const std::string& name, const KeyLimits& limits,
                                       uint64_t unix_seconds, TimePoint now) {
  if (!IsKeyName(name)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_KEY_NAME",
                 "a key's name is 1 to 64 letters, digits and -_.@")
        .Limit("key_name_bytes=1..64");
  }
  MutexLock changes(&changes_);
  {
    MutexLock lock(&mutex_);
    if (by_name_.contains(name)) {
      return Error(absl::StatusCode::kAlreadyExists, "KEY_EXISTS",
                   "there is a key '" + name + "' already")
          .Hint("choose another name; a revoked key keeps its own");
    }
  }
  NewKey made;
  made.secret = DrawSecret();
  made.key.name = name;
  made.key.hash = Sha256Hex(made.secret);
  made.key.created = unix_seconds;
  made.key.limits = limits;
  RETURN_IF_ERROR(store_->SaveKey(made.key));
  MutexLock lock(&mutex_);
  const auto caller = std::make_shared<Caller>(made.key, now);
  by_name_[name] = caller;
  by_hash_[made.key.hash] = caller;
  return made;
}

absl::StatusOr<StoredKey> KeyRing::Revoke(const std::string& name, uint64_t unix_seconds) {
  MutexLock changes(&changes_);
  std::shared_ptr<Caller> caller;
  StoredKey revoked;
  {
    MutexLock lock(&mutex_);
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) {
      return Error(absl::StatusCode::kNotFound, "KEY_NOT_FOUND", "there is no key '" + name + "'")
          .Hint("see `strata key list`");
    }
    caller = found->second;
    revoked = caller->key;
  }
  if (revoked.revoked != 0) {
    return revoked;
  }
  revoked.revoked = unix_seconds;
  RETURN_IF_ERROR(store_->SaveKey(revoked));
  MutexLock lock(&mutex_);
  caller->key.revoked = unix_seconds;
  return caller->key;
}

std::vector<StoredKey> KeyRing::List() {
  MutexLock lock(&mutex_);
  std::vector<StoredKey> keys;
  for (const auto& [name, caller] : by_name_) {
    keys.push_back(caller->key);
  }
  return keys;
}

absl::StatusOr<std::shared_ptr<Caller>> KeyRing::Authenticate(std::string_view authorization,
                                                              uint64_t unix_seconds) {
  {
    MutexLock lock(&mutex_);
    if (by_name_.empty()) {
      return std::shared_ptr<Caller>();
    }
  }
  const std::string_view secret = BearerOf(authorization);
  if (secret.empty()) {
    return Unauthenticated("KEY_MISSING", "this cluster wants an API key");
  }
  // By hash: how long the look-up takes says nothing about any key.
  const std::string hash = Sha256Hex(secret);
  std::shared_ptr<Caller> caller;
  bool save = false;
  {
    MutexLock lock(&mutex_);
    const auto found = by_hash_.find(hash);
    if (found == by_hash_.end()) {
      return Unauthenticated("KEY_UNKNOWN", "this cluster does not know the API key");
    }
    caller = found->second;
    if (caller->key.revoked != 0) {
      return Unauthenticated("KEY_REVOKED", "API key '" + caller->key.name + "' was revoked");
    }
    caller->key.last_used = unix_seconds;
    caller->use_unsaved = true;
    save = !saving_ && unix_seconds >= saved_at_ + kSaveUsesEverySeconds;
    if (save) {
      saving_ = true;
      saved_at_ = unix_seconds;
    }
  }
  if (save) {
    run_blocking_([this] { SaveUses(); });
  }
  return caller;
}

void KeyRing::SaveUses() {
  MutexLock changes(&changes_);
  std::vector<StoredKey> used;
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, caller] : by_name_) {
      if (std::exchange(caller->use_unsaved, false)) {
        used.push_back(caller->key);
      }
    }
  }
  for (const StoredKey& key : used) {
    if (const absl::Status saved = store_->SaveKey(key); !saved.ok()) {
      spdlog::warn("when key '{}' was last used was not written: {}", key.name, Describe(saved));
    }
  }
  MutexLock lock(&mutex_);
  saving_ = false;
}

absl::StatusOr<std::unique_ptr<KeyUse>> KeyRing::Admit(std::shared_ptr<Caller> caller,
                                                       uint64_t prompt_tokens, TimePoint now) {
  if (caller != nullptr) {
    RETURN_IF_ERROR(caller->Begin(prompt_tokens, now));
  }
  return std::unique_ptr<KeyUse>(new KeyUse(std::move(caller), prompt_tokens));
}

std::string KeyRing::Scoped(const Caller* caller, std::string_view request_id) {
  // Neither a name nor an id holds a line break.
  return (caller == nullptr ? "" : caller->scope() + "\n") + std::string(request_id);
}

}  // namespace strata
