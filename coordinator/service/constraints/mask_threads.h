// The threads on which masks are made: a state may take a hundred milliseconds, which neither the
// loop nor other answers' masks are to wait for.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_MASK_THREADS_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_MASK_THREADS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "coordinator/engine/token_constraint.h"
#include "coordinator/service/constraints/answer_constraints.h"
#include "text/masks/answer_matcher.h"

namespace strata {

// Any thread.
class MaskThreads {
 public:
  explicit MaskThreads(size_t threads);
  ~MaskThreads() { Stop(); }
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  // In the order of these calls; nothing after Stop.
  void Run(std::function<void()> task);
  // Waits for tasks that run; drops the others.
  void Stop();

 private:
  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ STRATA_GUARDED_BY(mutex_);
  bool stopped_ STRATA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// One answer's masks, the next of which is made on such a thread while the session waits. On the
// loop, but for what the thread has in hand.
class ThreadedConstraint final : public TokenConstraint,
                                 public std::enable_shared_from_this<ThreadedConstraint> {
 public:
  // Makes the first set, on the calling thread. Errors of AnswerMatcher, and CONSTRAINT_EMPTY.
  static absl::StatusOr<std::shared_ptr<TokenConstraint>> Make(
      std::shared_ptr<const AnswerPlan> plan, std::string key, AnswerConstraints::Host host,
      std::shared_ptr<MaskThreads> threads);

  std::shared_ptr<const NextTokens> Next() override { return next_; }
  absl::Status problem() const override { return problem_; }
  void Take(uint32_t token_id) override;

 private:
  ThreadedConstraint(std::unique_ptr<AnswerMatcher> matcher, std::string key,
                     AnswerConstraints::Host host, std::shared_ptr<MaskThreads> threads)
      : matcher_(std::move(matcher)),
        key_(std::move(key)),
        host_(std::move(host)),
        threads_(std::move(threads)) {}

  absl::StatusOr<std::shared_ptr<const NextTokens>> MakeNext();

  const std::unique_ptr<AnswerMatcher> matcher_;  // The thread's while there is no next set.
  const std::string key_;
  const AnswerConstraints::Host host_;
  const std::shared_ptr<MaskThreads> threads_;
  std::shared_ptr<const NextTokens> next_;
  absl::Status problem_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_MASK_THREADS_H_
