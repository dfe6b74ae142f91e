#include "coordinator/service/constraints/mask_threads.h"

#include "common/status.h"
#include "common/token_mask_form.h"

namespace strata {

absl::Status ConstraintsStopped() {
  return Error(absl::StatusCode::kUnavailable, "STOPPING", "the coordinator is stopping")
      .Hint("send the request again once it is back");
}

MaskThreads::MaskThreads(size_t threads) {
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

void MaskThreads::Run(Task task) {
  {
    const MutexLock lock(&mutex_);
    if (!stopped_) {
      tasks_.push_back(std::move(task));
      changed_.NotifyOne();
      return;
    }
  }
  task(/*stopped=*/true);
}

void MaskThreads::Stop() {
  std::deque<Task> others;
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    others.swap(tasks_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  for (const Task& task : others) {
    task(/*stopped=*/true);
  }
}

void MaskThreads::Work() {
  while (true) {
    Task task;
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
    task(/*stopped=*/false);
  }
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> ThreadedConstraint::Make(
    std::shared_ptr<const AnswerPlan> plan, Needs needs) {
  std::shared_ptr<ThreadedConstraint> made(new ThreadedConstraint(std::move(needs)));
  ASSIGN_OR_RETURN(made->matcher_, AnswerMatcher::Make(std::move(plan)));
  ASSIGN_OR_RETURN(made->next_, made->MakeNext(std::nullopt));
  if (made->next_->complete) {
    return Error(absl::StatusCode::kInvalidArgument, "CONSTRAINT_EMPTY",
                 "the constraint admits the empty text alone");
  }
  return std::shared_ptr<TokenConstraint>(std::move(made));
}

absl::StatusOr<AnswerMask> ThreadedConstraint::NextMask(std::optional<uint32_t> taken) {
  if (taken.has_value()) {
    RETURN_IF_ERROR(matcher_->Take(*taken));
  }
  return matcher_->Next();
}

absl::StatusOr<std::shared_ptr<const NextTokens>> ThreadedConstraint::MakeNext(
    std::optional<uint32_t> taken) {
  const nanoseconds begin = ThreadTime();
  absl::StatusOr<AnswerMask> mask = NextMask(taken);
  const nanoseconds took = ThreadTime() - begin;
  needs_.host.metrics->OnMask(took);
  if (mask.ok()) {
    if (absl::Status in_time = time_.Add(took); !in_time.ok()) {
      needs_.on_too_expensive(in_time);
      return in_time;
    }
  }
  RETURN_IF_ERROR(mask.status());
  auto next = std::make_shared<NextTokens>();
  next->bits = std::move(mask->words);
  next->digest = TokenMaskDigest(next->bits);
  next->complete = mask->complete;
  return std::shared_ptr<const NextTokens>(std::move(next));
}

void ThreadedConstraint::Take(uint32_t token_id) {
  next_ = nullptr;
  needs_.threads->Run([self = shared_from_this(), token_id](bool stopped) {
    if (stopped) {
      return;
    }
    self->needs_.host.run_on_loop([self, next = self->MakeNext(token_id)] {
      if (next.ok()) {
        self->next_ = *next;
      } else {
        self->problem_ = next.status();
      }
      self->needs_.host.on_next(self->needs_.key);
    });
  });
}

}  // namespace strata
