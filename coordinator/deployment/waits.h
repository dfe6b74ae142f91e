// What is being waited for, so that `status` can say so and what is late becomes a problem.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_WAITS_H_
#define STRATA_COORDINATOR_DEPLOYMENT_WAITS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "strata/v1/admin.pb.h"

namespace strata {

struct Waiting {
  std::string what;      // v1::Wait's.
  std::string node;      // "": none in particular.
  std::string model;     // Likewise.
  TimePoint since{};     // It began, or last made progress.
  nanoseconds limit{0};  // Then it is given up; 0: never.
  nanoseconds late{0};   // Then it is a problem; 0: at half of the limit, if it has one.
  std::string hint;      // What to do when it is late.
};

v1::Wait Describe(const Waiting& wait, TimePoint now);
// None while it is in time.
std::optional<v1::Problem> ProblemOf(const Waiting& wait, TimePoint now);

// Waits of threads that cannot be looked at from the event loop. Any thread.
class WaitBoard {
 public:
  // Takes its entry off the board when it goes.
  class Entry {
   public:
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    // It got further: counts from now on, and is called `what`.
    void Progress(std::string what);

   private:
    friend class WaitBoard;
    Entry(WaitBoard* board, uint64_t id) : board_(board), id_(id) {}
    WaitBoard* const board_;
    const uint64_t id_;
  };

  // It outlives the board.
  explicit WaitBoard(const Clock* clock) : clock_(clock) {}

  // `wait.since` is now. The board outlives the entry.
  std::unique_ptr<Entry> Begin(Waiting wait);
  std::vector<Waiting> List() const;

 private:
  const Clock* const clock_;
  mutable Mutex mutex_;
  uint64_t newest_ STRATA_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Waiting> waits_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_WAITS_H_
