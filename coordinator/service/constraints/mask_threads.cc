#include "coordinator/service/constraints/mask_threads.h"

#include "common/status.h"
#include "common/token_mask_form.h"

namespace strata {

MaskThreads::MaskThreads(size_t threads) {
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

void MaskThreads::Run(std::function<void()> task) {
  const MutexLock lock(&mutex_);
  if (!stopped_) {
    tasks_.push_back(std::move(task));
    changed_.NotifyOne();
  }
}

void MaskThreads::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    dropped.swap(tasks_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void MaskThreads::Work() {
  while (true) {
    std::function<void()> task;
    {
      const MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopped_) {
        changed_.Wait(&mutex_);
      }
      if (stopped_) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> ThreadedConstraint::Make(
    std::shared_ptr<const AnswerPlan> plan, std::string key, AnswerConstraints::Host host,
    std::shared_ptr<MaskThreads> threads) {
  ASSIGN_OR_RETURN(auto matcher, AnswerMatcher::Make(std::move(plan)));
  std::shared_ptr<ThreadedConstraint> made(new ThreadedConstraint(
      std::move(matcher), std::move(key), std::move(host), std::move(threads)));
  ASSIGN_OR_RETURN(made->next_, made->MakeNext());
  if (made->next_->complete) {
    return Error(absl::StatusCode::kInvalidArgument, "CONSTRAINT_EMPTY",
                 "the constraint admits the empty text alone");
  }
  return std::shared_ptr<TokenConstraint>(std::move(made));
}

absl::StatusOr<std::shared_ptr<const NextTokens>> ThreadedConstraint::MakeNext() {
  ASSIGN_OR_RETURN(AnswerMask mask, matcher_->Next());
  auto next = std::make_shared<NextTokens>();
  next->bits = std::move(mask.words);
  next->digest = TokenMaskDigest(next->bits);
  next->complete = mask.complete;
  return std::shared_ptr<const NextTokens>(std::move(next));
}

void ThreadedConstraint::Take(uint32_t token_id) {
  next_ = nullptr;
  threads_->Run([self = shared_from_this(), token_id] {
    const absl::Status taken = self->matcher_->Take(token_id);
    auto next =
        taken.ok() ? self->MakeNext() : absl::StatusOr<std::shared_ptr<const NextTokens>>(taken);
    self->host_.run_on_loop([self, next = std::move(next)] {
      if (next.ok()) {
        self->next_ = *next;
      } else {
        self->problem_ = next.status();
      }
      self->host_.on_next(self->key_);
    });
  });
}

}  // namespace strata
