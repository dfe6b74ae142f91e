// What stands behind sdk::Cancellation.
#ifndef STRATA_SDK_CPP_CANCELLATION_H_
#define STRATA_SDK_CPP_CANCELLATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "common/mutex.h"
#include "sdk/cpp/strata.h"

namespace strata::sdk {

class Cancellation::State {
 public:
  void Cancel() STRATA_EXCLUDES(mutex_);
  bool cancelled() STRATA_EXCLUDES(mutex_);
  // Runs `callback` at Cancel(), or now if that has been. The id is for Remove().
  uint64_t Add(std::function<void()> callback) STRATA_EXCLUDES(mutex_);
  // When it returns, the callback neither runs nor will run.
  void Remove(uint64_t id) STRATA_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  bool cancelled_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ STRATA_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::function<void()>> callbacks_ STRATA_GUARDED_BY(mutex_);
};

// Has `callback` run when `cancellation` is cancelled within this object's life.
class CancelScope {
 public:
  CancelScope(const std::optional<Cancellation>& cancellation, std::function<void()> callback);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  std::shared_ptr<Cancellation::State> state_;
  uint64_t id_ = 0;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_CPP_CANCELLATION_H_
