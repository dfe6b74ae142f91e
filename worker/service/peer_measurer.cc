#include "worker/service/peer_measurer.h"

#include <tuple>

#include "common/app/log.h"
#include "common/status.h"

namespace strata {

PeerMeasurer::PeerMeasurer(Measure measure)
    : measure_(std::move(measure)), thread_([this] { Loop(); }) {}

PeerMeasurer::~PeerMeasurer() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void PeerMeasurer::Add(const v1::MeasurePeer& peer, std::shared_ptr<Outbox> out) {
  MutexLock lock(&mutex_);
  if (queue_.size() < kMaxQueued) {
    queue_.emplace_back(peer, std::move(out));
    changed_.NotifyAll();
  }
}

void PeerMeasurer::Clear() {
  MutexLock lock(&mutex_);
  queue_.clear();
}

void PeerMeasurer::Loop() {
  while (true) {
    v1::MeasurePeer peer;
    std::shared_ptr<Outbox> out;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (stopping_) {
        return;
      }
      std::tie(peer, out) = std::move(queue_.front());
      queue_.pop_front();
    }
    v1::WorkerMessage message;
    v1::PeerMeasured* measured = message.mutable_peer_measured();
    *measured = measure_(peer);
    measured->set_node(peer.node());
    measured->set_incarnation(peer.incarnation());
    if (measured->has_error()) {
      LogWarn({{"peer", peer.node()}}, Describe(StatusOf(measured->error())));
    }
    out->Send(std::move(message));
  }
}

}  // namespace strata
