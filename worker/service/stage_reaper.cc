#include "worker/service/stage_reaper.h"

#include <algorithm>
#include <utility>

#include "worker/service/shard_host.h"
#include "worker/service/stage_task.h"

namespace strata {
namespace {

// Waits until the stage neither loads nor computes, and takes it apart. How many frames it has
// discarded.
uint64_t TakeApart(StageTask* task) {
  if (task->thread.joinable()) {
    task->thread.join();
  }
  uint64_t discarded = 0;
  // What is left of them ends in the other order: weights before what keeps them cached.
  std::shared_ptr<StageTask> successor;
  std::unique_ptr<CachePin> pin;
  std::shared_ptr<RankSeat> seat;
  std::unique_ptr<Shard> shard;
  if (const std::shared_ptr<ShardHost> host = task->Host()) {
    shard = host->Stop();
    discarded = host->stats().frames_discarded;
  }
  {
    MutexLock lock(&task->mutex);
    task->host = nullptr;
    seat = std::move(task->seat);
    pin = std::move(task->pin);
    shard = shard != nullptr ? std::move(shard) : std::move(task->shard);
    successor = std::move(task->successor);
  }
  if (successor != nullptr && shard != nullptr) {
    MutexLock lock(&successor->mutex);
    successor->shard = std::move(shard);  // It begins once this one is gone.
    successor->pin = std::move(pin);
  }
  return discarded;
}

}  // namespace

StageReaper::StageReaper(Gone gone) : gone_(std::move(gone)), thread_([this] { Loop(); }) {}

StageReaper::~StageReaper() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void StageReaper::Add(std::shared_ptr<StageTask> task) {
  MutexLock lock(&mutex_);
  waiting_.push_back(std::move(task));
  changed_.NotifyAll();
}

// One that has nothing to wait for, if there is any: packing cannot be interrupted.
std::shared_ptr<StageTask> StageReaper::TakeNext() {
  const auto ended = std::find_if(waiting_.begin(), waiting_.end(), [](const auto& task) {
    MutexLock lock(&task->mutex);
    return task->ended || !task->thread.joinable();
  });
  const auto it = ended == waiting_.end() ? waiting_.begin() : ended;
  std::shared_ptr<StageTask> task = std::move(*it);
  waiting_.erase(it);
  return task;
}

void StageReaper::Loop() {
  while (true) {
    std::shared_ptr<StageTask> task;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (waiting_.empty()) {
        return;
      }
      task = TakeNext();
    }
    const uint64_t discarded = TakeApart(task.get());
    gone_(task->id, discarded);
  }
}

}  // namespace strata
