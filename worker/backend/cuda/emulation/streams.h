// Streams of an emulated device, as CUDA has them: what is put on one is done in order, and when it
// is done is left open until the host waits for it, or an event of another stream does. When that
// is, a test chooses: what lacks a wait for an event gives other results in another order.
#ifndef STRATA_WORKER_BACKEND_CUDA_EMULATION_STREAMS_H_
#define STRATA_WORKER_BACKEND_CUDA_EMULATION_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace strata::cuda_emulation {

class EmulatedStream;

// A place in a stream, once it was recorded there; it may be recorded again.
struct EmulatedEvent {
  EmulatedStream* stream = nullptr;  // Of the last time.
  uint64_t recorded = 0;             // Times.
  uint64_t reached = 0;              // The last of these that was.
};

// What was put on a stream while it was recorded.
using RecordedWork = std::vector<std::function<void()>>;

// Made by Streams. Any thread.
class EmulatedStream {
 public:
  void Put(std::function<void()> work);
  void Record(EmulatedEvent* event);
  // What is put on it from now on is done after the event, as it was recorded last.
  void WaitFor(const EmulatedEvent& event);

  // From now on what is put on it is recorded instead, and no event may be. What another thread
  // put there would be recorded too: it ends the process.
  void BeginRecording();
  RecordedWork EndRecording();

  // Does what was put on it, in order, until `done` says so or nothing is left: as a device does
  // whose host is at something else.
  void DoUntil(const std::function<bool()>& done);

 private:
  friend class Streams;
  struct Item {
    std::function<void()> work = nullptr;  // Null: waits.
    const EmulatedEvent* event = nullptr;
    uint64_t times = 0;
    EmulatedStream* of = nullptr;  // Where that is recorded.
  };
  explicit EmulatedStream(class Streams* all) : all_(*all) {}
  void Add(Item item);
  bool Ready() const;
  void DoFirst();
  // Until the event was reached so many times, and what that takes of other streams.
  void DoUntil(const EmulatedEvent& event, uint64_t times);
  void DoAll();

  class Streams& all_;
  std::deque<Item> items_;
  bool recording_ = false;
  std::thread::id recorder_;
  RecordedWork recorded_;
};

class Streams {
 public:
  // When work is done: 0 at once; 1 when the host waits for it, and no more than that takes; else
  // drawn with this seed.
  explicit Streams(uint64_t order) : order_(order), random_(order) {}

  // Lives as long as this.
  EmulatedStream* Make();
  // The host waits.
  void Finish(const EmulatedEvent& event);
  void FinishAll();

 private:
  friend class EmulatedStream;
  // After something was put on a stream.
  void DoSome();
  void DoAll();

  const uint64_t order_;
  Mutex mutex_;  // Of all streams. Held while work is done, which puts nothing on a stream.
  uint64_t random_;
  std::vector<std::unique_ptr<EmulatedStream>> streams_;
};

}  // namespace strata::cuda_emulation

#endif  // STRATA_WORKER_BACKEND_CUDA_EMULATION_STREAMS_H_
