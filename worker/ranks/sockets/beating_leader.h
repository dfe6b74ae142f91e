// A leader that tells those who follow that it is there.
#ifndef STRATA_WORKER_RANKS_SOCKETS_BEATING_LEADER_H_
#define STRATA_WORKER_RANKS_SOCKETS_BEATING_LEADER_H_

#include <memory>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "worker/ranks/leader_shard.h"

namespace strata {

// Every tenth of the followers' silence, on a thread of its own.
class BeatingLeader : public LeaderShard {
 public:
  BeatingLeader(std::unique_ptr<RankShard> own, RankTimes times, JoinFn join)
      : LeaderShard(std::move(own), times, std::move(join)), every_(times.silence / 10) {
    thread_ = std::thread([this] { Loop(); });
  }
  ~BeatingLeader() override {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

 private:
  void Loop() {
    while (true) {
      {
        MutexLock lock(&mutex_);
        if (!stopping_) {
          changed_.WaitFor(&mutex_, every_);
        }
        if (stopping_) {
          return;
        }
      }
      Beat();
    }
  }

  const nanoseconds every_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SOCKETS_BEATING_LEADER_H_
