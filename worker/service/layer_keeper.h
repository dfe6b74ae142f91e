// Keeps packed weights of single layers in the cache for a load that may come: fetches and packs
// them, one layer after another, and computes nothing.
#ifndef STRATA_WORKER_SERVICE_LAYER_KEEPER_H_
#define STRATA_WORKER_SERVICE_LAYER_KEEPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "strata/v1/membership.pb.h"
#include "worker/service/outbox.h"
#include "worker/service/stage_loader.h"
#include "worker/weights/kept_layers.h"

namespace strata {

// On a thread of its own. Any thread.
class LayerKeeper {
 public:
  struct Parts {
    std::string node;  // Named in errors.
    LoadContext context;
    uint64_t limit_bytes = 0;         // The most that is kept of the cache; 0: no limit.
    uint64_t disk_reserve_bytes = 0;  // Stay free of the cache's disk.
    // Free on it; nullopt: not known.
    std::function<std::optional<uint64_t>()> disk_free_bytes;
  };
  // Layers that may wait for their turn.
  static constexpr size_t kMostWaiting = 64;

  explicit LayerKeeper(Parts parts);
  ~LayerKeeper();  // Waits for the layer at hand.
  LayerKeeper(const LayerKeeper&) = delete;
  LayerKeeper& operator=(const LayerKeeper&) = delete;

  // The answer goes to `out`. Does not wait.
  void OnKeep(const v1::KeepLayer& message, std::shared_ptr<Outbox> out);
  // Does not wait: what was packed for these layers alone is deleted by and by. Nothing is answered
  // for those that were asked for before.
  void OnDrop(const v1::DropLayers& message);
  // Ends the layer at hand; it is answered with `why`. Its memory is free soon after.
  void Interrupt(const absl::Status& why);
  // Lets go of everything; what was packed stays in the cache until that needs the room. Nobody
  // waits for answers.
  void End();

  // Of the cache, that are kept.
  uint64_t bytes() const;

 private:
  struct Job {
    v1::KeepLayer message;
    std::shared_ptr<Outbox> out;
    Cancellation cancel;
    bool dropped = false;  // Of the mutex.
  };
  struct Kept {
    uint64_t bytes = 0;
    std::unique_ptr<CachePin> pin;
    std::vector<Blob> made;  // Of the packed files, those that were not there before.
  };
  using Place = std::pair<uint64_t, uint32_t>;  // Deployment and layer.

  void Loop();
  absl::StatusOr<Kept> Run(Job* job, LoadCounters* counters);
  absl::Status CheckRoom(const v1::Load& load) const;
  // What is kept of a layer, pinned, if the cache has all that a load of it reads.
  std::optional<Kept> Pin(const v1::Load& load) const;
  uint64_t BytesBeside(const Place& place) const STRATA_REQUIRES(mutex_);
  void Answer(const Job& job, const absl::StatusOr<uint64_t>& bytes, uint64_t fetched_bytes) const;

  const Parts parts_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<Job>> waiting_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<Job> job_ STRATA_GUARDED_BY(mutex_);  // At hand.
  absl::Status interrupted_ STRATA_GUARDED_BY(mutex_);  // Why it is.
  std::map<Place, Kept> kept_ STRATA_GUARDED_BY(mutex_);
  std::vector<Blob> going_ STRATA_GUARDED_BY(mutex_);  // Packed files that the thread deletes.

  std::thread thread_;  // Last: it uses the others.
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_LAYER_KEEPER_H_
