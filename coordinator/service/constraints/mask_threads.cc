#include "coordinator/service/constraints/mask_threads.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/token_mask_form.h"

namespace strata {
namespace {

// Sets behind tokens that may follow were this many times slower to make than they may be: then
// none is made so often.
constexpr int kMostOverrun = 4;
constexpr uint32_t kRests = 64;

std::shared_ptr<const NextTokens> NextOf(AnswerMask mask) {
  auto next = std::make_shared<NextTokens>();
  next->bits = std::move(mask.words);
  next->digest = TokenMaskDigest(next->bits);
  next->complete = mask.complete;
  return next;
}

bool BeginWith(const std::vector<uint32_t>& tokens, const std::vector<DraftedSet>& ahead) {
  return tokens.size() >= ahead.size() &&
         std::equal(ahead.begin(), ahead.end(), tokens.begin(),
                    [](const DraftedSet& set, uint32_t token) { return set.token == token; });
}

bool Admits(const NextTokens& set, uint32_t token) {
  return set.bits.empty() || (token / 32 < set.bits.size() && MaskHas(set.bits, token));
}

}  // namespace

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
  ASSIGN_OR_RETURN(auto matcher, AnswerMatcher::Make(std::move(plan)));
  made->path_ = std::make_unique<AnswerPath>(std::move(matcher));
  Sets sets;
  RETURN_IF_ERROR(made->Make({}, &sets));
  made->next_ = std::move(sets.next);
  if (made->next_->complete) {
    return Error(absl::StatusCode::kInvalidArgument, "CONSTRAINT_EMPTY",
                 "the constraint admits the empty text alone");
  }
  return std::shared_ptr<TokenConstraint>(std::move(made));
}

absl::Status ThreadedConstraint::AddTime(nanoseconds took) {
  absl::Status in_time = time_.Add(took);
  if (!in_time.ok()) {
    needs_.on_too_expensive(in_time);
  }
  return in_time;
}

absl::Status ThreadedConstraint::Make(const DraftWish& wish, Sets* sets) {
  std::vector<uint32_t> ahead;
  for (const DraftedSet& set : sets->ahead) {
    ahead.push_back(set.token);
  }
  const nanoseconds begin = ThreadTime();
  RETURN_IF_ERROR(path_->GoTo(sets->taken, ahead));
  if (sets->next == nullptr) {
    absl::StatusOr<AnswerMask> mask = path_->Next();
    const nanoseconds took = ThreadTime() - begin;
    needs_.host.metrics->OnMask(took);
    RETURN_IF_ERROR(mask.status());
    RETURN_IF_ERROR(AddTime(took));
    sets->next = NextOf(*std::move(mask));
  }
  if (!sets->next->complete) {
    MakeAhead(wish, sets);
  }
  return absl::OkStatus();
}

void ThreadedConstraint::MakeAhead(const DraftWish& wish, Sets* sets) {
  if (rests_ > 0) {
    --rests_;
    return;
  }
  const nanoseconds begin = ThreadTime();
  nanoseconds now = begin;
  while (sets->ahead.size() < wish.most && now - begin < needs_.ahead_time) {
    std::optional<DraftedSet> made = MakeOne(wish, *sets);
    const nanoseconds took = ThreadTime() - now;
    now += took;
    if (!made.has_value()) {
      break;
    }
    needs_.host.metrics->OnMask(took);
    sets->ahead.push_back(*std::move(made));
    sets->took.push_back(took);
  }
  if (now - begin > kMostOverrun * needs_.ahead_time) {
    rests_ = kRests;
  }
}

// What is the only token, else what was guessed, else what the text has to go on with.
std::optional<DraftedSet> ThreadedConstraint::MakeOne(const DraftWish& wish, const Sets& sets) {
  const std::vector<DraftedSet>& ahead = sets.ahead;
  const NextTokens& here = ahead.empty() ? *sets.next : *ahead.back().behind;
  DraftedSet next;
  const std::optional<ForcedToken> forced =
      wish.forced ? ForcedTokenOf(here.bits, path_->vocabulary()) : std::nullopt;
  const bool guessed = BeginWith(wish.guesses, ahead) && wish.guesses.size() > ahead.size() &&
                       Admits(here, wish.guesses[ahead.size()]);
  if (forced.has_value() && (forced->only || !guessed)) {
    next.token = forced->id;
    next.reason = forced->only ? DraftReason::kOnly : DraftReason::kForced;
  } else if (guessed) {
    next.token = wish.guesses[ahead.size()];
  } else {
    return std::nullopt;
  }
  std::optional<AnswerMask> mask = path_->TryNext(next.token);
  // Where any may come, masks have no place behind those of others.
  if (!mask.has_value() || mask->words.empty() != sets.next->bits.empty()) {
    return std::nullopt;
  }
  next.behind = NextOf(*std::move(mask));
  return next;
}

void ThreadedConstraint::Take(uint32_t token_id) {
  untold_.push_back(token_id);
  if (ahead_.empty() || ahead_.front().token != token_id) {
    next_ = nullptr;
    ahead_.clear();
    ahead_took_.clear();
    return;
  }
  next_ = ahead_.front().behind;
  problem_ = AddTime(ahead_took_.front());
  ahead_.erase(ahead_.begin());
  ahead_took_.erase(ahead_took_.begin());
}

bool ThreadedConstraint::GoesFurther(const DraftWish& wish) const {
  if (ahead_.size() >= wish.most || rests_ > 0) {
    return false;
  }
  const bool guessed = wish.guesses.size() > ahead_.size() && BeginWith(wish.guesses, ahead_);
  return guessed || (wish.forced && ahead_.empty());
}

void ThreadedConstraint::Ask(const DraftWish& wish) {
  if (!problem_.ok() || (next_ != nullptr && !GoesFurther(wish))) {
    return;
  }
  Sets sets{std::exchange(untold_, {}), std::exchange(next_, nullptr), std::exchange(ahead_, {}),
            std::exchange(ahead_took_, {})};
  needs_.threads->Run([self = shared_from_this(), wish, sets](bool stopped) mutable {
    if (stopped) {
      return;
    }
    const absl::Status made = self->Make(wish, &sets);
    self->needs_.host.run_on_loop([self, made, sets = std::move(sets)]() mutable {
      self->problem_ = made;
      if (made.ok()) {
        self->next_ = std::move(sets.next);
        self->ahead_ = std::move(sets.ahead);
        self->ahead_took_ = std::move(sets.took);
      }
      self->needs_.host.on_next(self->needs_.key);
    });
  });
}

}  // namespace strata
