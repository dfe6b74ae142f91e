#include "worker/backend/cuda/emulation/streams.h"

#include <utility>

#include "common/check.h"
#include "common/random.h"

namespace strata::cuda_emulation {

void EmulatedStream::Put(std::function<void()> work) {
  MutexLock lock(&all_.mutex_);
  if (recording_) {
    STRATA_CHECK(recorder_ == std::this_thread::get_id());
    recorded_.push_back(std::move(work));
    return;
  }
  Add({.work = std::move(work)});
}

void EmulatedStream::Record(EmulatedEvent* event) {
  MutexLock lock(&all_.mutex_);
  event->stream = this;
  const uint64_t times = ++event->recorded;
  Add({.work = [event, times] { event->reached = times; }});
}

void EmulatedStream::WaitFor(const EmulatedEvent& event) {
  MutexLock lock(&all_.mutex_);
  if (event.recorded != 0) {
    Add({.event = &event, .times = event.recorded, .of = event.stream});
  }
}

void EmulatedStream::BeginRecording() {
  MutexLock lock(&all_.mutex_);
  STRATA_CHECK(!recording_);
  recording_ = true;
  recorder_ = std::this_thread::get_id();
}

RecordedWork EmulatedStream::EndRecording() {
  MutexLock lock(&all_.mutex_);
  STRATA_CHECK(recording_);
  recording_ = false;
  return std::exchange(recorded_, {});
}

void EmulatedStream::DoUntil(const std::function<bool()>& done) {
  MutexLock lock(&all_.mutex_);
  while (!items_.empty() && !done()) {
    DoFirst();
  }
}

void EmulatedStream::Add(Item item) {
  STRATA_CHECK(!recording_);
  items_.push_back(std::move(item));
  all_.DoSome();
}

bool EmulatedStream::Ready() const {
  return !items_.empty() &&
         (items_.front().event == nullptr || items_.front().event->reached >= items_.front().times);
}

void EmulatedStream::DoFirst() {
  const Item item = std::move(items_.front());
  items_.pop_front();
  if (item.event != nullptr) {
    item.of->DoUntil(*item.event, item.times);
  } else {
    item.work();
  }
}

void EmulatedStream::DoUntil(const EmulatedEvent& event, uint64_t times) {
  while (event.reached < times) {
    STRATA_CHECK(!items_.empty());
    DoFirst();
  }
}

void EmulatedStream::DoAll() {
  while (!items_.empty()) {
    DoFirst();
  }
}

EmulatedStream* Streams::Make() {
  streams_.emplace_back(new EmulatedStream(this));
  return streams_.back().get();
}

void Streams::Finish(const EmulatedEvent& event) {
  MutexLock lock(&mutex_);
  if (event.recorded != 0) {
    event.stream->DoUntil(event, event.recorded);
  }
}

void Streams::FinishAll() {
  MutexLock lock(&mutex_);
  DoAll();
}

void Streams::DoAll() {
  for (const auto& stream : streams_) {
    stream->DoAll();
  }
}

void Streams::DoSome() {
  if (order_ == 0) {
    DoAll();
    return;
  }
  constexpr uint32_t kMostAtOnce = 4;
  const auto draw = [&](size_t below) {
    return Philox(order_, static_cast<uint32_t>(++random_), 0) % static_cast<uint32_t>(below);
  };
  for (uint32_t left = order_ == 1 ? 0 : draw(kMostAtOnce); left > 0; --left) {
    EmulatedStream& stream = *streams_[draw(streams_.size())];
    if (stream.Ready()) {
      stream.DoFirst();
    }
  }
}

}  // namespace strata::cuda_emulation
