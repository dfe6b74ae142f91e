// One loaded stage at work: frames come in on a link, are computed one after another, and go out
// on the link to the next stage, or to the coordinator.
#ifndef STRATA_WORKER_SERVICE_SHARD_HOST_H_
#define STRATA_WORKER_SERVICE_SHARD_HOST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/rpc/link_service.h"
#include "strata/v1/membership.pb.h"
#include "worker/backend/shard.h"
#include "worker/runner/shard_runner.h"
#include "worker/service/frame_link.h"
#include "worker/service/worker_report.h"

namespace strata {

struct ShardHostConfig {
  ShardRunnerConfig runner;
  std::string model;          // For logs and metrics, as the next.
  uint64_t weight_bytes = 0;  // As packed.
  uint64_t incarnation = 0;   // Of this worker.
  uint32_t pipeline = 0;
  uint32_t max_in_flight = 2;  // Steps.
  // Whom to send to: the next stage, or the coordinator (node empty) after the last one.
  std::string next_node;
  uint64_t next_incarnation = 0;
  std::string next_address;
  milliseconds step_timeout{10000};
};

// What a stage has to tell the coordinator. Called from threads of the host and of its links;
// must not call the host.
class ShardHostEvents {
 public:
  virtual ~ShardHostEvents() = default;
  virtual void OnFenceAck(const v1::FenceAck& ack) = 0;
  virtual void OnLinkFault(const v1::LinkFault& fault) = 0;
  // The step at hand has been computed for longer than the step timeout: it may never end, and
  // nothing here can end it.
  virtual void OnStepHangs() = 0;
};

// Any thread. Frames are computed by a ComputeQueue; links are opened and closed by a thread of the
// host's own.
class ShardHost {
 public:
  // `shard` is computed under `compute`, which all stages of the process share. `clock`, `compute`
  // and `dialer` outlive the host.
  ShardHost(ShardHostConfig config, std::unique_ptr<Shard> shard, const Clock* clock,
            Mutex* compute, LinkDialer* dialer, std::shared_ptr<ShardHostEvents> events);
  ~ShardHost();  // Stops.
  ShardHost(const ShardHost&) = delete;
  ShardHost& operator=(const ShardHost&) = delete;

  // Ends the links of older epochs, waits for the step at hand, opens the link onward for `epoch`
  // (retrying within step_timeout, since the next stage may not have heard of it yet), and tells
  // events whether that worked. Returns at once. A newer fence replaces one that is still at work.
  // `next`: whom it sends to from then on, with its address; null: as before.
  void Fence(uint64_t epoch, const v1::NextHop* next = nullptr);
  // StageEpochs::OpenAhead: opens links for `epoch` beside those in use, which that fence finds.
  // `kv_from`: takes over KV from there (null: from nobody), with its worker's address.
  void OpenAhead(uint64_t epoch, const v1::NextHop* next = nullptr,
                 const v1::KvSource* kv_from = nullptr);
  // ShardRunner::GiveKv, between two steps. FAILED_PRECONDITION (UNLOADED) after Stop.
  absl::StatusOr<std::vector<v1::CarryKvPart>> GiveKv(const v1::CarryKvRequest& request,
                                                      bool begins);

  // A link that comes in. Waits a little (1 s) when the fence of its epoch is still on its way.
  // FAILED_PRECONDITION: WRONG_STAGE, STALE_EPOCH, EPOCH_NOT_LOADED.
  absl::StatusOr<std::shared_ptr<LinkSink>> AcceptLink(const v1::LinkOpen& open,
                                                       std::shared_ptr<InboundLink> link);

  // `passed` since the last call, to tell a step that hangs. One thread, a few times a second: time
  // in which this process was stopped does not count.
  void Watch(nanoseconds passed);

  // Ends links and threads, and waits for a step that is being computed. No call to events begins
  // after it. The shard, which nobody uses any more; null the second time.
  std::unique_ptr<Shard> Stop();

  RunnerStats stats() const;
  StageReport Report() const;
  uint64_t memory_bytes() const;

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_SHARD_HOST_H_
