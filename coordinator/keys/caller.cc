#include "coordinator/keys/caller.h"

#include <algorithm>

#include "common/status.h"

namespace strata {
namespace {

// In no id of a key and in no request id.
constexpr char kSeparator = '\n';

}  // namespace

Caller::Caller(const StoredKey& key, TimePoint now)
    : id_(key.id),
      name_(key.name),
      admin_(key.admin),
      limits_(key.limits),
      limiter_(key.limits, now) {}

std::string Caller::Title() const {
  return "API key " + (name_.empty() ? id_ : "'" + name_ + "' (" + id_ + ")");
}

absl::Status Caller::CheckClaims(int32_t priority, bool guaranteed) const {
  if (admin_) {
    return absl::OkStatus();
  }
  if (priority > limits_.max_priority) {
    return Error(absl::StatusCode::kPermissionDenied, "KEY_PRIORITY",
                 "requests of " + Title() + " may not have priority " + std::to_string(priority))
        .Limit("max_priority=" + std::to_string(limits_.max_priority))
        .Hint("ask for no more, or use a key of `strata key create --max-priority N`");
  }
  if (guaranteed && !limits_.guaranteed) {
    return Error(absl::StatusCode::kPermissionDenied, "KEY_GUARANTEED",
                 "requests of " + Title() + " may not be guaranteed")
        .Hint("leave it out, or use a key of `strata key create --guaranteed`");
  }
  return absl::OkStatus();
}

absl::Status Caller::Check(const std::string& request_id, bool replace, TimePoint now) {
  MutexLock lock(&mutex_);
  return limiter_.Check(Title(), replace && in_flight_.contains(request_id), now);
}

absl::Status Caller::Begin(const std::string& request_id, bool replace, TimePoint now) {
  MutexLock lock(&mutex_);
  const bool replaces = replace && in_flight_.contains(request_id);
  if (absl::Status begun = limiter_.Begin(Title(), replaces, now); !begun.ok()) {
    return begun;
  }
  in_flight_.insert(request_id);
  return absl::OkStatus();
}

void Caller::Charge(uint64_t tokens, TimePoint now) {
  MutexLock lock(&mutex_);
  limiter_.Charge(tokens, now);
}

void Caller::GiveBack(uint64_t tokens) {
  MutexLock lock(&mutex_);
  limiter_.GiveBack(tokens);
}

void Caller::End(const std::string& request_id, TimePoint begun, TimePoint now) {
  MutexLock lock(&mutex_);
  limiter_.End(begun, now);
  in_flight_.erase(in_flight_.find(request_id));
}

KeyUse::~KeyUse() {
  if (begun_) {
    caller_->End(request_id_, begun_at_, newest_);
  }
}

absl::Status KeyUse::Check(const std::string& request_id, bool replace, TimePoint now) {
  if (caller_ == nullptr) {
    return absl::OkStatus();
  }
  MutexLock lock(&mutex_);
  return begun_ ? absl::OkStatus() : caller_->Check(request_id, replace, now);
}

absl::Status KeyUse::Admit(const std::string& request_id, bool replace, uint64_t prompt_tokens,
                           TimePoint now) {
  if (caller_ == nullptr) {
    return absl::OkStatus();
  }
  MutexLock lock(&mutex_);
  if (!begun_) {
    if (absl::Status begun = caller_->Begin(request_id, replace, now); !begun.ok()) {
      return begun;
    }
    begun_ = true;
    request_id_ = request_id;
    begun_at_ = newest_ = now;
  }
  caller_->Charge(prompt_tokens, now);
  return absl::OkStatus();
}

void KeyUse::Generated(uint64_t tokens, TimePoint now) {
  if (caller_ == nullptr) {
    return;
  }
  caller_->Charge(tokens, now);
  MutexLock lock(&mutex_);
  newest_ = std::max(newest_, now);
}

void KeyUse::GiveBack(uint64_t prompt_tokens) {
  if (caller_ != nullptr) {
    caller_->GiveBack(prompt_tokens);
  }
}

std::string ScopedId(const Caller* caller, std::string_view request_id) {
  return (caller == nullptr ? "" : caller->id() + kSeparator) + std::string(request_id);
}

std::string_view KeyOfScopedId(std::string_view scoped) {
  const size_t end = scoped.find(kSeparator);
  return end == std::string_view::npos ? "" : scoped.substr(0, end);
}

}  // namespace strata
