#include "worker/backend/mlx/streams.h"

#include <optional>
#include <vector>

#include "common/mutex.h"
#include "mlx/device.h"
#include "mlx/stream.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// Of the default device, which stays the same.
class FreeStreams {
 public:
  mx::Stream Take() {
    MutexLock lock(&mutex_);
    if (free_.empty()) {
      // Of the other kind one could not be used once the thread that made it has ended.
      return mx::new_thread_unsafe_stream(mx::default_device());
    }
    const mx::Stream stream = free_.back();
    free_.pop_back();
    return stream;
  }
  void Leave(const mx::Stream& stream) {
    MutexLock lock(&mutex_);
    free_.push_back(stream);
  }

 private:
  Mutex mutex_;
  std::vector<mx::Stream> free_ STRATA_GUARDED_BY(mutex_);
};

// Threads end after it, whenever they do.
FreeStreams& Free() {
  static auto* const free = new FreeStreams;
  return *free;
}

struct Taken {
  std::optional<mx::Stream> stream;

  ~Taken() {
    if (stream.has_value()) {
      Free().Leave(*stream);
    }
  }
};

}  // namespace

void TakeStream() {
  thread_local Taken taken;
  if (taken.stream.has_value() || mx::peek_default_stream(mx::default_device()).has_value()) {
    return;
  }
  const mx::Stream stream = Free().Take();
  taken.stream = stream;
  mx::set_default_stream(stream);
}

}  // namespace strata::mlx
