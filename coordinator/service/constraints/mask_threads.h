// The threads on which masks are made: a state may take a hundred milliseconds, which neither the
// loop nor other answers' masks are to wait for.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_MASK_THREADS_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_MASK_THREADS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "coordinator/engine/token_constraint.h"
#include "coordinator/service/constraints/answer_constraints.h"
#include "text/masks/answer_path.h"
#include "text/masks/mask_time.h"

namespace strata {

// What is told to whoever comes behind a Stop.
absl::Status ConstraintsStopped();

// Any thread.
class MaskThreads {
 public:
  explicit MaskThreads(size_t threads);
  ~MaskThreads() { Stop(); }
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  // In the order of these calls. `stopped`: it is not to be done, since masks are made no more.
  using Task = std::function<void(bool stopped)>;
  void Run(Task task);
  // Waits for tasks that run, and tells the others, and those that come later.
  void Stop();

 private:
  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ STRATA_GUARDED_BY(mutex_);
  bool stopped_ STRATA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// One answer's masks, the next of which is made on such a thread while the session waits, and with
// it some of those behind tokens that may follow. On the loop, but for what the thread has in hand.
class ThreadedConstraint final : public TokenConstraint,
                                 public std::enable_shared_from_this<ThreadedConstraint> {
 public:
  // What it needs beside its plan.
  struct Needs {
    std::string key;
    AnswerConstraints::Host host;
    std::shared_ptr<MaskThreads> threads;
    MaskTimeLimits limits = {};
    // Told of a grammar whose masks take longer than they may, on any thread.
    std::function<void(const absl::Status&)> on_too_expensive;
    // Of a processor, for the sets behind tokens that may follow: none is begun later.
    nanoseconds ahead_time = std::chrono::microseconds(500);
  };
  // Makes the first set, on the calling thread, which is to be such a one. Errors of AnswerMatcher
  // and MaskTime; CONSTRAINT_EMPTY.
  static absl::StatusOr<std::shared_ptr<TokenConstraint>> Make(
      std::shared_ptr<const AnswerPlan> plan, Needs needs);

  std::shared_ptr<const NextTokens> Next() override { return next_; }
  absl::Status problem() const override { return problem_; }
  void Take(uint32_t token_id) override;
  void Ask(const DraftWish& wish) override;
  const std::vector<DraftedSet>& Ahead() const override { return ahead_; }

 private:
  // What a thread is to make, and has made.
  struct Sets {
    std::vector<uint32_t> taken;  // By the answer, since the path was told.
    std::shared_ptr<const NextTokens> next;
    std::vector<DraftedSet> ahead;
    std::vector<nanoseconds> took;  // To make each of those.
  };

  explicit ThreadedConstraint(Needs needs) : needs_(std::move(needs)), time_(needs_.limits) {}

  bool GoesFurther(const DraftWish& wish) const;
  absl::Status AddTime(nanoseconds took);
  // On such a thread. What was made before of the sets is left as it is.
  absl::Status Make(const DraftWish& wish, Sets* sets);
  void MakeAhead(const DraftWish& wish, Sets* sets);
  std::optional<DraftedSet> MakeOne(const DraftWish& wish, const Sets& sets);

  const Needs needs_;
  // The thread's while there is no next set.
  std::unique_ptr<AnswerPath> path_;
  MaskTime time_;
  uint32_t rests_ = 0;  // So often none is made but the next one.
  std::shared_ptr<const NextTokens> next_;
  std::vector<uint32_t> untold_;  // Tokens of the answer that the path was not told of.
  std::vector<DraftedSet> ahead_;
  std::vector<nanoseconds> ahead_took_;
  absl::Status problem_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_MASK_THREADS_H_
