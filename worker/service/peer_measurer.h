// Measures links to other workers, one at a time, as the coordinator asks.
#ifndef STRATA_WORKER_SERVICE_PEER_MEASURER_H_
#define STRATA_WORKER_SERVICE_PEER_MEASURER_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "strata/v1/membership.pb.h"
#include "worker/service/outbox.h"

namespace strata {

// Any thread.
class PeerMeasurer {
 public:
  // Peers that may wait; more are dropped, and the coordinator asks again.
  static constexpr size_t kMaxQueued = 1024;

  // Probes a peer; blocks for some seconds at most. Fills all but who the peer is.
  using Measure = std::function<v1::PeerMeasured(const v1::MeasurePeer&)>;

  // `measure` is called from a thread of the measurer's own.
  explicit PeerMeasurer(Measure measure);
  ~PeerMeasurer();  // Waits for the probe at hand.
  PeerMeasurer(const PeerMeasurer&) = delete;
  PeerMeasurer& operator=(const PeerMeasurer&) = delete;

  // What was measured goes to `out`.
  void Add(const v1::MeasurePeer& peer, std::shared_ptr<Outbox> out);
  // Forgets those that wait.
  void Clear();

 private:
  void Loop();

  const Measure measure_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::deque<std::pair<v1::MeasurePeer, std::shared_ptr<Outbox>>> queue_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_PEER_MEASURER_H_
