// One deployment's stage on this worker, from its Load to its end.
#ifndef STRATA_WORKER_SERVICE_STAGE_TASK_H_
#define STRATA_WORKER_SERVICE_STAGE_TASK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "strata/v1/membership.pb.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/node/node_stages.h"
#include "worker/node/step_watch.h"
#include "worker/service/frame_link.h"
#include "worker/service/outbox.h"
#include "worker/service/rank_parts.h"
#include "worker/service/shard_host.h"
#include "worker/service/stage_loader.h"

namespace strata {

// What a stage runs on. Nothing is owned; all outlives the stage.
struct StageSurroundings {
  std::string node;
  std::string coordinator;  // host:port; where a last stage sends results.
  const Clock* clock = nullptr;
  Mutex* compute = nullptr;  // Held by the stage that computes.
  LinkDialer* dialer = nullptr;
  RankSurroundings ranks;
  std::function<void()> give_up;  // A step hangs: ends the process.
  // Called before each fault is told.
  std::function<void()> before_fault;
};

// Any thread; what is guarded is WorkerNode's and StageReaper's to set.
struct StageTask {
  StageTask(StageId id, v1::Load load, uint64_t incarnation, std::shared_ptr<Outbox> out);

  // Loads the stage, or resizes the one that was here before, and hosts it; on `thread`. What was
  // here before is kept when it cannot be resized. Errors: LoadStage's, ResizeStage's.
  absl::Status LoadAndHost(const LoadContext& context, const StageSurroundings& around)
      STRATA_EXCLUDES(mutex);
  // How far loading is.
  v1::LoadProgress Progress() const;
  // What it takes of memory, once loading has ended.
  uint64_t Bytes() STRATA_EXCLUDES(mutex);
  // Null until loading has ended well, and of a rank that follows.
  std::shared_ptr<ShardHost> Host() STRATA_EXCLUDES(mutex);
  // Of a rank that follows, once it is loaded; else null.
  std::shared_ptr<RankSeat> Seat() STRATA_EXCLUDES(mutex);
  // Whether a call of such a rank hangs (StepWatch). One thread.
  bool SeatHangs(nanoseconds passed) STRATA_EXCLUDES(mutex);

  const StageId id;
  const v1::Load load;
  const uint64_t incarnation;  // The node's.
  const std::shared_ptr<Outbox> out;
  Cancellation cancel;
  LoadCounters counters;
  std::thread thread;  // Once loading began.
  StepWatch seat_watch;

  Mutex mutex;
  bool ended STRATA_GUARDED_BY(mutex) = false;  // Loading has.
  std::unique_ptr<CachePin> pin STRATA_GUARDED_BY(mutex);
  std::shared_ptr<ShardHost> host STRATA_GUARDED_BY(mutex);
  std::shared_ptr<RankSeat> seat STRATA_GUARDED_BY(mutex);
  // The weights of a stage that was loaded here before, until `host` has them.
  std::unique_ptr<Shard> shard STRATA_GUARDED_BY(mutex);
  // Once retired: who wants its weights.
  std::shared_ptr<StageTask> successor STRATA_GUARDED_BY(mutex);
};

// What the load says of the stage's host; the rest is the worker's to fill.
ShardHostConfig HostConfigOf(const v1::Load& load, StageSpec spec);

// Stages' events, which go to the outbox of their life; a step that hangs to `give_up` alone.
// `before_fault` is called before each fault goes there.
std::shared_ptr<ShardHostEvents> MakeStageEvents(std::shared_ptr<Outbox> out,
                                                 std::function<void()> give_up,
                                                 std::function<void()> before_fault);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_STAGE_TASK_H_
