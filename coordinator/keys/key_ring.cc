#include "coordinator/keys/key_ring.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "common/app/log.h"
#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr char kSecretPrefix[] = "strata-";
constexpr size_t kSecretBytes = 32;
constexpr char kIdPrefix[] = "key-";
constexpr size_t kIdBytes = 4;
constexpr size_t kMaxNameBytes = 64;
// When a key was last used is written this often at most.
constexpr uint64_t kSaveUsesEverySeconds = 60;

absl::Status Unauthenticated(const char* reason, const std::string& message) {
  return Error(absl::StatusCode::kUnauthenticated, reason, message)
      .Hint(
          "send `authorization: Bearer KEY` (STRATA_API_KEY for strata and the SDKs) with a key of "
          "`strata key create`");
}

bool IsKeyName(const std::string& name) {
  return name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
         });
}

// So many random bytes, as hex digits.
std::string Draw(size_t count) {
  Sha256Bytes bytes{};
  STRATA_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return ToHex(bytes).substr(0, 2 * count);
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

KeyRing::KeyRing(StateStore* store, std::function<void(std::function<void()>)> run_blocking)
    : store_(store), run_blocking_(std::move(run_blocking)) {}

absl::Status KeyRing::Load(TimePoint now) {
  ASSIGN_OR_RETURN(const std::vector<StoredKey> stored, store_->ListKeys());
  MutexLock lock(&mutex_);
  for (const StoredKey& key : stored) {
    Add(key, now);
  }
  return absl::OkStatus();
}

void KeyRing::Add(const StoredKey& key, TimePoint now) {
  keys_[key.id] = {key, std::make_shared<Caller>(key, now)};
  by_hash_[key.hash] = key.id;
}

absl::StatusOr<NewKey> KeyRing::Create(const KeySpec& spec, uint64_t unix_seconds, TimePoint now) {
  if (!IsKeyName(spec.name)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_KEY_NAME",
                 "a key's name is of letters, digits and -_.@")
        .Limit("key_name_bytes=" + std::to_string(kMaxNameBytes));
  }
  MutexLock changes(&changes_);
  NewKey made;
  made.secret = kSecretPrefix + Draw(kSecretBytes);
  made.key.name = spec.name;
  made.key.hash = Sha256Hex(made.secret);
  made.key.admin = spec.admin;
  made.key.created = unix_seconds;
  made.key.limits = spec.limits;
  do {
    made.key.id = kIdPrefix + Draw(kIdBytes);
  } while (IsTaken(made.key.id));
  RETURN_IF_ERROR(store_->SaveKey(made.key));
  MutexLock lock(&mutex_);
  Add(made.key, now);
  return made;
}

bool KeyRing::IsTaken(const std::string& id) {
  MutexLock lock(&mutex_);
  return keys_.contains(id);
}

absl::StatusOr<StoredKey> KeyRing::Revoke(const std::string& id, uint64_t unix_seconds) {
  MutexLock changes(&changes_);
  StoredKey revoked;
  {
    MutexLock lock(&mutex_);
    const auto found = keys_.find(id);
    if (found == keys_.end()) {
      return Error(absl::StatusCode::kNotFound, "KEY_NOT_FOUND", "there is no key '" + id + "'")
          .Hint("`strata key list` shows their ids");
    }
    revoked = found->second.key;
    if (revoked.revoked != 0) {
      return revoked;
    }
    if (revoked.admin && GoodAdmins() == 1) {
      return Error(absl::StatusCode::kFailedPrecondition, "LAST_ADMIN_KEY",
                   "'" + id + "' is the last admin key: without it nobody could administrate")
          .Hint("make another one first with `strata key create --admin`");
    }
  }
  revoked.revoked = unix_seconds;
  RETURN_IF_ERROR(store_->SaveKey(revoked));
  MutexLock lock(&mutex_);
  StoredKey& key = keys_.find(id)->second.key;
  key.revoked = unix_seconds;
  return key;
}

std::vector<StoredKey> KeyRing::List() {
  std::vector<StoredKey> keys;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : keys_) {
      keys.push_back(entry.key);
    }
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const StoredKey& a, const StoredKey& b) { return a.created < b.created; });
  return keys;
}

std::string KeyRing::NameOf(std::string_view id) {
  MutexLock lock(&mutex_);
  const auto found = keys_.find(id);
  return found == keys_.end() ? "" : found->second.key.name;
}

bool KeyRing::empty() {
  MutexLock lock(&mutex_);
  return keys_.empty();
}

bool KeyRing::HasAdmin() {
  MutexLock lock(&mutex_);
  return GoodAdmins() > 0;
}

int KeyRing::GoodAdmins() const {
  int count = 0;
  for (const auto& [id, entry] : keys_) {
    count += entry.key.admin && entry.key.revoked == 0 ? 1 : 0;
  }
  return count;
}

absl::StatusOr<std::shared_ptr<Caller>> KeyRing::Authenticate(std::string_view authorization,
                                                              uint64_t unix_seconds) {
  if (empty()) {
    return std::shared_ptr<Caller>();
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
    Entry& entry = keys_.find(found->second)->second;
    if (entry.key.revoked != 0) {
      return Unauthenticated("KEY_REVOKED", "API key '" + entry.key.id + "' was revoked");
    }
    caller = entry.caller;
    entry.key.last_used = unix_seconds;
    entry.use_unsaved = true;
    save = !saving_ && !closed_ && unix_seconds >= saved_at_ + kSaveUsesEverySeconds;
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

absl::StatusOr<std::shared_ptr<Caller>> KeyRing::AuthenticateOperator(
    std::string_view authorization, OperatorCall call, uint64_t unix_seconds) {
  const bool closed = HasAdmin();
  if (!closed && BearerOf(authorization).empty()) {
    return std::shared_ptr<Caller>();
  }
  ASSIGN_OR_RETURN(auto caller, Authenticate(authorization, unix_seconds));
  if (caller == nullptr || caller->admin()) {
    return std::shared_ptr<Caller>();
  }
  if (call == OperatorCall::kOwn) {
    return caller;
  }
  if (closed) {
    return Error(absl::StatusCode::kPermissionDenied, "KEY_NOT_ADMIN",
                 "API key '" + caller->id() + "' may send requests, not administrate")
        .Hint("use a key of `strata key create --admin`");
  }
  return std::shared_ptr<Caller>();
}

void KeyRing::Close() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  SaveUses();
}

void KeyRing::SaveUses() {
  MutexLock changes(&changes_);
  std::vector<StoredKey> used;
  {
    MutexLock lock(&mutex_);
    for (auto& [id, entry] : keys_) {
      if (std::exchange(entry.use_unsaved, false)) {
        used.push_back(entry.key);
      }
    }
  }
  for (const StoredKey& key : used) {
    if (const absl::Status saved = store_->SaveKey(key); !saved.ok()) {
      LogWarn({{"key", key.id}}, "when it was last used was not written: " + Describe(saved));
    }
  }
  MutexLock lock(&mutex_);
  saving_ = false;
}

}  // namespace strata
