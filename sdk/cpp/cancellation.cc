#include "sdk/cpp/cancellation.h"

#include <utility>

namespace strata::sdk {

void Cancellation::State::Cancel() {
  MutexLock lock(&mutex_);
  if (cancelled_) {
    return;
  }
  cancelled_ = true;
  // Under the lock, so that Remove() waits for a callback that runs. They only cancel calls.
  for (auto& [id, callback] : callbacks_) {
    callback();
  }
  callbacks_.clear();
}

bool Cancellation::State::cancelled() {
  MutexLock lock(&mutex_);
  return cancelled_;
}

uint64_t Cancellation::State::Add(std::function<void()> callback) {
  MutexLock lock(&mutex_);
  if (cancelled_) {
    callback();
    return 0;
  }
  const uint64_t id = next_id_++;
  callbacks_.emplace(id, std::move(callback));
  return id;
}

void Cancellation::State::Remove(uint64_t id) {
  MutexLock lock(&mutex_);
  callbacks_.erase(id);
}

Cancellation::Cancellation() : state_(std::make_shared<State>()) {}
void Cancellation::Cancel() const { state_->Cancel(); }
bool Cancellation::cancelled() const { return state_->cancelled(); }

CancelScope::CancelScope(const std::optional<Cancellation>& cancellation,
                         std::function<void()> callback) {
  if (cancellation.has_value()) {
    state_ = cancellation->state();
    id_ = state_->Add(std::move(callback));
  }
}

CancelScope::~CancelScope() {
  if (state_ != nullptr) {
    state_->Remove(id_);
  }
}

}  // namespace strata::sdk
