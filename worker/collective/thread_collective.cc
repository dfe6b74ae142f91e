#include "worker/collective/thread_collective.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/mutex.h"
#include "common/status.h"

namespace strata {
namespace {

// Looks at the others before a rank sleeps: some tens of microseconds, ten times the gaps between
// ranks that are equally fast.
constexpr int kLooks = 4096;
// How long a rank sleeps before it looks at the clock again.
constexpr nanoseconds kNap = milliseconds(5);

std::string PointText(const CollectivePoint& point) {
  return absl::StrCat("call ", point.call, " of step ", point.step, " of epoch ", point.epoch);
}

// What a rank says when it comes.
struct Visit {
  CollectivePoint point;
  GatheredRows rows;  // Of a barrier none.

  bool Matches(const Visit& other) const {
    return point == other.point && rows.rows == other.rows.rows &&
           rows.to_first == other.rows.to_first &&
           std::equal(rows.columns.begin(), rows.columns.end(), other.rows.columns.begin(),
                      other.rows.columns.end());
  }
};

// Where all ranks meet, one meeting after another.
class Meeting {
 public:
  Meeting(uint32_t ranks, const ThreadCollectiveOptions& options)
      : options_(options), seats_(ranks) {}

  uint32_t ranks() const { return static_cast<uint32_t>(seats_.size()); }

  absl::Status Meet(uint32_t rank, const Visit& visit) {
    Seat& own = seats_[rank];
    const uint64_t number = own.came.load(std::memory_order_relaxed) + 1;
    RETURN_IF_ERROR(Broken());
    own.visits[number % 2] = visit;
    own.came.store(number);
    Wake();
    RETURN_IF_ERROR(AwaitAll(number, visit.point));
    // A visit is written anew at the meeting after the next, to which a rank comes when all have
    // come to the next one, and so have left this.
    for (uint32_t other = 1; other < ranks(); ++other) {
      const Visit& first = seats_[0].visits[number % 2];
      const Visit& seen = seats_[other].visits[number % 2];
      if (!seen.Matches(first)) {
        return Break(Error(absl::StatusCode::kInternal, kCollectiveDiffers,
                           absl::StrCat("rank 0 is at ", PointText(first.point), " with ",
                                        first.rows.rows, " rows, and rank ", other, " at ",
                                        PointText(seen.point), " with ", seen.rows.rows)));
      }
    }
    for (uint32_t other = 0; other < ranks(); ++other) {
      if (other != rank && (rank == 0 || !visit.rows.to_first)) {
        Copy(seats_[other].visits[number % 2].rows, other, visit.rows);
      }
    }
    return absl::OkStatus();
  }

  void Abort(uint32_t rank, const absl::Status& why) {
    (void)Break(Error(absl::StatusCode::kAborted, kCollectiveAborted,
                      absl::StrCat("rank ", rank, " gave up: ", why.message())));
  }

 private:
  struct alignas(64) Seat {
    std::array<Visit, 2> visits;
    std::atomic<uint64_t> came{0};  // Meetings that the rank has come to.
  };

  static void Copy(const GatheredRows& from, uint32_t rank, const GatheredRows& to) {
    if (to.columns.empty() || to.columns[rank].size() == 0) {
      return;
    }
    const ByteColumns& columns = to.columns[rank];
    for (size_t row = 0; row < to.rows; ++row) {
      std::memcpy(to.data + row * to.stride + columns.begin,
                  from.data + row * from.stride + columns.begin, columns.size());
    }
  }

  bool AllCame(uint64_t number) const {
    return std::all_of(seats_.begin(), seats_.end(),
                       [number](const Seat& seat) { return seat.came.load() >= number; });
  }

  absl::Status Broken() {
    if (!broken_.load()) {
      return absl::OkStatus();
    }
    MutexLock lock(&mutex_);
    return why_;
  }

  // Returns why the collective is broken, which is what broke it first.
  absl::Status Break(const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (!broken_.load()) {
      why_ = why;
      broken_.store(true);
      changed_.NotifyAll();
    }
    return why_;
  }

  // Raised before the condition is looked at again under the mutex, and read after the condition
  // was changed: one side always sees the other.
  void Wake() {
    if (sleepers_.load() > 0) {
      MutexLock lock(&mutex_);
      changed_.NotifyAll();
    }
  }

  absl::Status AwaitAll(uint64_t number, const CollectivePoint& point) {
    for (int look = 0; options_.spins && look < kLooks; ++look) {
      if (AllCame(number)) {
        return absl::OkStatus();
      }
      if (look % 64 == 63) {
        std::this_thread::yield();
      }
    }
    const TimePoint deadline = options_.clock->Now() + options_.timeout;
    bool late = false;
    {
      MutexLock lock(&mutex_);
      sleepers_.fetch_add(1);
      while (!AllCame(number) && !broken_.load() && !late) {
        changed_.WaitFor(&mutex_, kNap);
        late = options_.clock->Now() >= deadline;
      }
      sleepers_.fetch_sub(1);
    }
    if (AllCame(number)) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Broken());
    const auto missing = std::find_if(seats_.begin(), seats_.end(), [number](const Seat& seat) {
      return seat.came.load() < number;
    });
    return Break(
        Error(absl::StatusCode::kDeadlineExceeded, kCollectiveTimeout,
              absl::StrCat("rank ", missing - seats_.begin(), " did not come to ", PointText(point),
                           " within ", options_.timeout / milliseconds(1), " ms"))
            .Limit(absl::StrCat("wait_ms=", options_.timeout / milliseconds(1))));
  }

  const ThreadCollectiveOptions options_;
  std::vector<Seat> seats_;  // By rank.
  std::atomic<bool> broken_{false};
  std::atomic<uint32_t> sleepers_{0};
  Mutex mutex_;
  CondVar changed_;
  absl::Status why_ STRATA_GUARDED_BY(mutex_);
};

class ThreadCollective : public Collective {
 public:
  ThreadCollective(std::shared_ptr<Meeting> meeting, uint32_t rank)
      : meeting_(std::move(meeting)), rank_(rank) {}

  uint32_t rank() const override { return rank_; }
  uint32_t ranks() const override { return meeting_->ranks(); }

  absl::Status Gather(const CollectivePoint& point, const GatheredRows& rows) override {
    STRATA_CHECK(rows.columns.size() == ranks());
    return meeting_->Meet(rank_, {point, rows});
  }
  absl::Status Barrier(const CollectivePoint& point) override {
    return meeting_->Meet(rank_, {point, {}});
  }
  void Abort(const absl::Status& why) override { meeting_->Abort(rank_, why); }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const uint32_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> MakeThreadCollectives(
    uint32_t ranks, const ThreadCollectiveOptions& options) {
  STRATA_CHECK(ranks > 0 && options.clock != nullptr);
  const auto meeting = std::make_shared<Meeting>(ranks, options);
  std::vector<std::unique_ptr<Collective>> made;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    made.push_back(std::make_unique<ThreadCollective>(meeting, rank));
  }
  return made;
}

}  // namespace strata
