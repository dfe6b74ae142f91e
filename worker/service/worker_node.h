// A worker less its network: what the coordinator tells it to load, fence, unload, measure and
// compute layer by layer, and the links that reach its stages.
#ifndef STRATA_WORKER_SERVICE_WORKER_NODE_H_
#define STRATA_WORKER_SERVICE_WORKER_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/platform/disk_gauge.h"
#include "common/rpc/link_service.h"
#include "strata/v1/membership.pb.h"
#include "worker/backend/backend.h"
#include "worker/node/node_stages.h"
#include "worker/service/cache_teller.h"
#include "worker/service/frame_link.h"
#include "worker/service/layer_keeper.h"
#include "worker/service/layer_reference.h"
#include "worker/service/outbox.h"
#include "worker/service/peer_measurer.h"
#include "worker/service/rank_parts.h"
#include "worker/service/stage_reaper.h"
#include "worker/service/worker_report.h"
#include "worker/weights/blob_fetcher.h"
#include "worker/weights/kept_layers.h"

namespace strata {

class ShardHost;
struct StageTask;

struct WorkerNodeOptions {
  std::string name;
  std::string address;      // host:port that peers dial.
  std::string coordinator;  // host:port; where last stages send results.
  std::string version;
  uint64_t memory_bytes = 0;  // The most the process uses in all.
  uint64_t fixed_bytes = 0;   // Of these, with nothing loaded.
  // Where memory_bytes are of a device with memory of its own, the same of the host's; else 0.
  uint64_t host_memory_bytes = 0;
  uint64_t host_fixed_bytes = 0;
  bool keep_packed = true;           // Weights, in the cache.
  uint64_t standby_limit_bytes = 0;  // The most of the cache for other nodes' layers; 0: no limit.
  uint64_t standby_reserve_bytes = 0;  // Of the cache's disk, what stays free beside those.
  DeviceSpeed speed;
};

// What the node stands on; nothing is owned, all outlives it.
struct WorkerNodeParts {
  Backend* backend = nullptr;
  WeightCache* cache = nullptr;
  BlobFetcher* fetcher = nullptr;
  BlobClient* blobs = nullptr;
  LinkDialer* dialer = nullptr;
  RankSurroundings ranks;
  const Clock* clock = nullptr;
  // For PeerMeasurer.
  std::function<v1::PeerMeasured(const v1::MeasurePeer&)> measure;
  // What went between this worker and others; may be null.
  std::function<WeightTraffic()> weight_traffic;
  // A step hangs (ShardHostEvents::OnStepHangs): ends the process, so that whoever keeps it running
  // starts it anew.
  std::function<void()> give_up;
};

// Does with threads what NodeStages decides. Any thread.
class WorkerNode : public LinkHandler, private NodeHost {
 public:
  WorkerNode(WorkerNodeOptions options, const WorkerNodeParts& parts);
  ~WorkerNode() override;  // Ends the life; waits for its threads.

  // Begins a life under `incarnation`. What the node has to say in it goes to the outbox. The life
  // before has ended.
  std::shared_ptr<Outbox> BeginLife(uint64_t incarnation);
  // The lease lapsed or the stream broke: drops every sequence and every stage.
  void EndLife();

  // Heartbeats ask from now on for what is loaded to be taken off, once requests have ended.
  void Leave();
  // Whether nothing is loaded, being loaded, or being taken off.
  bool Empty() const;

  v1::NodeInfo Info() const;
  WorkerReport Report() const;
  v1::Heartbeat MakeHeartbeat(uint64_t term) const;

  // One of Registered, Load, Unload, Fence, MeasurePeer, ComputeLayers, KeepLayer and DropLayers;
  // others are ignored. Does not wait.
  void OnMessage(const v1::CoordinatorMessage& message);

  // The rank that follows here, whose Load had this epoch; null: there is none.
  std::shared_ptr<RankSeat> SeatOf(uint64_t deployment, uint64_t loaded_epoch);
  // NodeStages::GivesKv; null: there is none.
  std::shared_ptr<ShardHost> GivesKv(uint64_t deployment, uint64_t loaded_epoch);

  // LinkHandler.
  Identity identity() const override;
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen& open,
                                                   const std::string& peer,
                                                   std::shared_ptr<InboundLink> link) override;

 private:
  // NodeHost.
  void Say(v1::WorkerMessage message) override STRATA_REQUIRES(mutex_);
  void Add(StageId stage, const v1::Load& load, StageId before) override STRATA_REQUIRES(mutex_);
  void BeginLoad(StageId stage) override STRATA_REQUIRES(mutex_);
  void TakeOff(StageId stage) override STRATA_REQUIRES(mutex_);
  void Fence(StageId stage, const v1::Fence& fence) override STRATA_REQUIRES(mutex_);

  // Memory that stages share: where they compute, or the host's beside a device's own.
  enum class Memory { kDevice, kHost };
  using ReserveFn = std::function<uint64_t(Memory memory, uint64_t bytes)>;

  void RunLoad(const std::shared_ptr<StageTask>& task);
  // Tells the coordinator at once, and once in a life, when the device has failed for good: before
  // what fails by it is told, so that the device is to blame and no request.
  void TellUnfit();
  std::vector<std::shared_ptr<StageTask>> Placed() const STRATA_REQUIRES(mutex_);
  LoadContext KeepingContext(ReserveFn reserve);  // Which keeps packed weights.
  LoadContext ContextOf(ReserveFn reserve) const;
  // What is set aside for single layers, beside all stages.
  struct Aside {
    uint64_t device_bytes = 0;
    uint64_t host_bytes = 0;
    uint64_t& of(Memory memory) { return memory == Memory::kHost ? host_bytes : device_bytes; }
    uint64_t of(Memory memory) const { return memory == Memory::kHost ? host_bytes : device_bytes; }
  };
  // What is free of --memory (or --host-memory) for a stage, or, with 0, for single layers.
  uint64_t FreeFor(Memory memory, StageId stage) const STRATA_REQUIRES(mutex_);
  // LoadContext::reserve_memory, and reserve_host_memory. Single layers give way to a stage.
  uint64_t Reserve(Memory memory, StageTask* task, uint64_t bytes);
  uint64_t ReserveAside(Memory memory, Aside* aside, uint64_t bytes);
  // Has single layers end that the stage's load has no room beside.
  void MakeRoom(Memory memory, const StageTask& task, uint64_t bytes) STRATA_REQUIRES(mutex_);
  void TellCache();
  void TickLoop();

  const WorkerNodeOptions options_;
  const WorkerNodeParts parts_;
  const DiskGauge disk_;
  KeptLayers layers_;
  CacheTeller cache_teller_;  // Of the ticker.
  // Stages compute in turns: they share the backend's threads.
  Mutex compute_;
  PeerMeasurer measurer_;

  Mutex telling_unfit_;  // Taken before `mutex_`.
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Outbox> outbox_ STRATA_GUARDED_BY(mutex_);  // Null between lives.
  // The coordinator has accepted the registration of this life.
  bool joined_ STRATA_GUARDED_BY(mutex_) = false;
  NodeStages stages_ STRATA_GUARDED_BY(mutex_);
  // Those that are not taken off.
  std::map<StageId, std::shared_ptr<StageTask>> tasks_ STRATA_GUARDED_BY(mutex_);
  Aside for_reference_ STRATA_GUARDED_BY(mutex_);
  Aside for_keeper_ STRATA_GUARDED_BY(mutex_);
  uint64_t term_ STRATA_GUARDED_BY(mutex_) = 0;        // The coordinator's, once it has accepted.
  bool told_unfit_ STRATA_GUARDED_BY(mutex_) = false;  // In this life.

  LayerReference reference_;
  LayerKeeper keeper_;
  StageReaper reaper_;
  std::thread ticker_;  // Last: it uses the others.
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_WORKER_NODE_H_
