#include "worker/backend/cuda/device/emulated_collective.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/emulation/streams.h"

namespace strata::cuda {
namespace {

using cuda_emulation::EmulatedStream;

// How far the streams of all ranks have come, in gathers. Any thread.
class Progress {
 public:
  explicit Progress(size_t ranks) : ranks_(ranks) {}

  // One more is on the rank's stream.
  void Put(uint32_t rank) {
    Change([&] { ++ranks_[rank].put; });
  }
  // The rank's stream has come to its next one.
  void Come(uint32_t rank) {
    Change([&] { ++ranks_[rank].come; });
  }
  void Close(uint32_t rank) {
    Change([&] { ranks_[rank].closed = true; });
  }

  // Waits until another rank waits in a gather that is on the rank's stream, which has not come to
  // it. False: closed.
  bool AwaitNeed(uint32_t rank) {
    MutexLock lock(&mutex_);
    while (!ranks_[rank].closed && !Needed(rank)) {
      changed_.Wait(&mutex_);
    }
    return !ranks_[rank].closed;
  }
  bool IsNeeded(uint32_t rank) {
    MutexLock lock(&mutex_);
    return Needed(rank);
  }

 private:
  struct Rank {
    uint64_t put = 0;
    uint64_t come = 0;
    bool closed = false;
  };

  template <typename F>
  void Change(const F& change) {
    MutexLock lock(&mutex_);
    change();
    changed_.NotifyAll();
  }
  bool Needed(uint32_t rank) const STRATA_REQUIRES(mutex_) {
    uint64_t most = 0;
    for (const Rank& one : ranks_) {
      most = std::max(most, one.come);
    }
    return ranks_[rank].come < std::min(most, ranks_[rank].put);
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<Rank> ranks_ STRATA_GUARDED_BY(mutex_);
};

// What is on a stream may be done when its end is gone.
struct Gathering {
  std::unique_ptr<Collective> by_threads;
  std::shared_ptr<Progress> progress;
  Mutex mutex;
  absl::Status failed STRATA_GUARDED_BY(mutex);

  absl::Status Failed() {
    MutexLock lock(&mutex);
    return failed;
  }
  absl::Status OrFail(const absl::Status& status) {
    MutexLock lock(&mutex);
    if (failed.ok()) {
      failed = status;
    }
    return failed;
  }
  // On the stream.
  void Gather(const CollectivePoint& point, const GatheredRows& rows) {
    progress->Come(by_threads->rank());
    if (!Failed().ok()) {
      return;
    }
    absl::Status status = by_threads->Gather(point, rows);
    if (status.ok()) {
      // What is on the stream next may write over what the others read.
      status = by_threads->Barrier(point);
    }
    (void)OrFail(status);
  }
};

class EmulatedCollective : public Collective {
 public:
  EmulatedCollective(std::unique_ptr<Collective> by_threads, std::shared_ptr<Progress> progress,
                     std::shared_ptr<Device> device)
      : gathering_(std::make_shared<Gathering>()), device_(std::move(device)) {
    gathering_->by_threads = std::move(by_threads);
    gathering_->progress = std::move(progress);
    goes_on_ = std::thread([this] {
      Progress& progress = *gathering_->progress;
      while (progress.AwaitNeed(rank())) {
        stream()->DoUntil([&] { return !progress.IsNeeded(rank()); });
      }
    });
  }
  ~EmulatedCollective() override {
    Abort(absl::CancelledError("the rank's end was destroyed"));
    gathering_->progress->Close(rank());
    goes_on_.join();
  }

  uint32_t rank() const override { return gathering_->by_threads->rank(); }
  uint32_t ranks() const override { return gathering_->by_threads->ranks(); }

  absl::Status Gather(const CollectivePoint& point, const GatheredRows& rows) override {
    RETURN_IF_ERROR(gathering_->Failed());
    RETURN_IF_ERROR(gathering_->OrFail(device_->LaunchStatus()));
    stream()->Put([gathering = gathering_, point, rows,
                   columns = std::vector<ByteColumns>(rows.columns.begin(), rows.columns.end())] {
      GatheredRows here = rows;
      here.columns = columns;
      gathering->Gather(point, here);
    });
    gathering_->progress->Put(rank());
    return gathering_->Failed();
  }
  absl::Status Barrier(const CollectivePoint& point) override {
    RETURN_IF_ERROR(Finish());
    return gathering_->OrFail(gathering_->by_threads->Barrier(point));
  }
  absl::Status Finish() override {
    ASSIGN_OR_RETURN(const Event event, device_->MakeEvent());
    const OwnedEvent done(device_.get(), event);
    RETURN_IF_ERROR(device_->Record(event, device_->stream()));
    RETURN_IF_ERROR(device_->Finish(event));
    return gathering_->Failed();
  }
  void Abort(const absl::Status& why) override { gathering_->by_threads->Abort(why); }

 private:
  EmulatedStream* stream() const { return static_cast<EmulatedStream*>(device_->stream()); }

  const std::shared_ptr<Gathering> gathering_;
  const std::shared_ptr<Device> device_;
  std::thread goes_on_;  // Where another rank waits, as a device would that needs no host for it.
};

}  // namespace

std::vector<std::unique_ptr<Collective>> MakeEmulatedCollectives(
    std::span<const std::shared_ptr<Device>> devices, const ThreadCollectiveOptions& options) {
  auto by_threads = MakeThreadCollectives(static_cast<uint32_t>(devices.size()), options);
  const auto progress = std::make_shared<Progress>(devices.size());
  std::vector<std::unique_ptr<Collective>> ends;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    ends.push_back(
        std::make_unique<EmulatedCollective>(std::move(by_threads[rank]), progress, devices[rank]));
  }
  return ends;
}

}  // namespace strata::cuda
