// What is left to do for a stage that was taken off.
#ifndef STRATA_WORKER_SERVICE_STAGE_REAPER_H_
#define STRATA_WORKER_SERVICE_STAGE_REAPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "common/mutex.h"
#include "worker/node/node_stages.h"

namespace strata {

struct StageTask;

// Waits until a stage neither loads nor computes, hands its weights to the stage that takes them
// over, and frees the rest; one stage after the other, on a thread of its own. Any thread.
class StageReaper {
 public:
  // What the stage had is free. `frames_discarded`: while it was hosted.
  using Gone = std::function<void(StageId stage, uint64_t frames_discarded)>;

  // `gone` is called from the reaper's thread, which holds no lock then.
  explicit StageReaper(Gone gone);
  ~StageReaper();  // Waits until all stages are gone.
  StageReaper(const StageReaper&) = delete;
  StageReaper& operator=(const StageReaper&) = delete;

  // Its load was cancelled, and nobody else begins anything with it. Does not wait.
  void Add(std::shared_ptr<StageTask> task);

 private:
  std::shared_ptr<StageTask> TakeNext() STRATA_REQUIRES(mutex_);
  void Loop();

  const Gone gone_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<StageTask>> waiting_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_STAGE_REAPER_H_
