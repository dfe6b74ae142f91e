#include "worker/node/stage_epochs.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "worker/node/switch_policy.h"

namespace strata {
namespace {

// Whether the next stage may accept later what it refused now.
bool MayAcceptLater(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason != "WRONG_NODE" && reason != "WRONG_STAGE" && reason != "STALE_EPOCH";
}

}  // namespace

StageEpochs::StageEpochs(StagePlace place, StageTimes times)
    : place_(std::move(place)), times_(times) {}

absl::Status StageEpochs::Refuse(std::string_view reason, const std::string& what) const {
  return Error(absl::StatusCode::kFailedPrecondition, reason, what)
      .Node(place_.node)
      .Fact("deployment", place_.deployment)
      .Fact("stage", place_.stage);
}

// ---- Fences.

void StageEpochs::Fence(uint64_t epoch) {
  wanted_ = std::max(wanted_, epoch);
  asked_ = std::max(asked_.value_or(0), epoch);
}

void StageEpochs::SetNext(const v1::NextHop& next) {
  place_.next_node = next.node();
  place_.next_incarnation = next.incarnation();
}

void StageEpochs::OpenAhead(uint64_t epoch, const v1::NextHop* next, const v1::KvSource* kv_from) {
  if (epoch <= wanted_) {
    return;  // Nobody waits for it any more.
  }
  if (TakesMore(epoch, kv_from)) {
    ahead_->kv_from.push_back(*kv_from);
    ahead_->carried = false;
    asked_ahead_ = true;
    return;
  }
  ahead_ = Ahead{.epoch = epoch};
  if (next != nullptr) {
    ahead_->next = *next;
  } else {
    ahead_->next.set_node(place_.next_node);
    ahead_->next.set_incarnation(place_.next_incarnation);
  }
  if (kv_from != nullptr) {
    ahead_->kv_from.push_back(*kv_from);
  }
  asked_ahead_ = true;
}

FenceStep StageEpochs::Next(TimePoint now) {
  while (!stopping_) {
    switch (phase_) {
      case Phase::kIdle:
        if (asked_.has_value()) {
          return Begin();
        }
        if (!std::exchange(asked_ahead_, false)) {
          return {.until = TimePoint::max()};
        }
        works_ahead_ = true;
        fence_ = ahead_->epoch;
        kv_from_ = ahead_->kv_from;
        if (ahead_->onward) {
          OnLinked();
        } else {
          BeginDialling(now);
        }
        break;
      case Phase::kBeginning:
      case Phase::kDialing:
      case Phase::kCarrying:
        return {.until = TimePoint::max()};
      case Phase::kLinked:
        if (!Superseded()) {
          return Carry();
        }
        End(absl::OkStatus());
        break;
      case Phase::kBetweenTries:
        if (Superseded()) {
          End(absl::OkStatus());
        } else if (now >= deadline_) {
          End(status_);
        } else if (now < again_) {
          return {.until = again_};
        } else {
          return Dial(now);
        }
        break;
      case Phase::kDone: {
        phase_ = Phase::kIdle;
        if (Superseded()) {
          break;  // Nobody waits for this one any more.
        }
        FenceStep step{.act = FenceAct::kAcknowledge};
        step.ack.set_deployment(place_.deployment);
        step.ack.set_epoch(fence_);
        step.ack.set_ahead(works_ahead_);
        step.ack.set_carried(works_ahead_ && HasAhead(fence_) && ahead_->carried);
        if (!status_.ok()) {
          *step.ack.mutable_error() = DetailOf(status_);
        }
        return step;
      }
    }
  }
  return {.until = TimePoint::max()};
}

FenceStep StageEpochs::Begin() {
  fence_ = *asked_;
  asked_.reset();
  works_ahead_ = false;
  kv_from_.clear();
  phase_ = Phase::kBeginning;
  FenceStep step{.act = FenceAct::kBegin, .epoch = fence_};
  if (fence_ > epoch_) {
    step.ended = std::exchange(inbound_, 0);
    step.why =
        Refuse("FENCED", "the link was ended by the fence of epoch " + std::to_string(fence_));
    step.clears = true;
    TakeAhead(&step);
  }
  // The same fence again finds its link open.
  opens_ = fence_ >= epoch_ && onward_epoch_ != fence_;
  if (opens_) {
    step.closes = true;
    onward_epoch_ = step.adopts_onward ? fence_ : 0;
    opens_ = !step.adopts_onward;
  }
  return step;
}

void StageEpochs::TakeAhead(FenceStep* step) {
  asked_ahead_ = false;
  if (ahead_.has_value() && switch_policy::FindsItsLinks(ahead_->epoch, fence_) &&
      ahead_->next.node() == place_.next_node &&
      ahead_->next.incarnation() == place_.next_incarnation) {
    step->adopts_inbound = true;
    step->adopts_onward = ahead_->onward;
    if (ahead_->carried) {
      kv_from_ = ahead_->kv_from;
    }
  } else {
    ahead_.reset();
  }
}

void StageEpochs::BeginDialling(TimePoint now) {
  phase_ = Phase::kBetweenTries;
  deadline_ = now + place_.step_timeout;
  again_ = now;
  status_ = absl::OkStatus();
}

void StageEpochs::OnBegun(const absl::Status& status, TimePoint now) {
  LinkId adopted = 0;
  if (HasAhead(fence_)) {
    adopted = ahead_->inbound;
    ahead_.reset();
  }
  if (!status.ok()) {
    End(status);
    return;
  }
  epoch_ = std::max(epoch_, fence_);
  if (adopted != 0) {
    inbound_ = adopted;
  }
  if (!opens_) {
    OnLinked();
    return;
  }
  BeginDialling(now);
}

FenceStep StageEpochs::Dial(TimePoint now) {
  phase_ = Phase::kDialing;
  return {.act = FenceAct::kDial,
          .epoch = fence_,
          .ahead = works_ahead_,
          .open = OpenOnward(),
          .timeout =
              std::max<nanoseconds>(milliseconds(1), std::min(deadline_ - now, times_.dial_try))};
}

v1::LinkOpen StageEpochs::OpenOnward() const {
  v1::LinkOpen open;
  open.set_from_node(place_.node);
  open.set_from_incarnation(place_.incarnation);
  const bool ahead = works_ahead_ && ahead_.has_value();
  open.set_to_node(ahead ? ahead_->next.node() : place_.next_node);
  open.set_to_incarnation(ahead ? ahead_->next.incarnation() : place_.next_incarnation);
  open.set_deployment(place_.deployment);
  open.set_epoch(fence_);
  open.set_pipeline(place_.pipeline);
  open.set_to_stage(place_.stage + 1);
  return open;
}

void StageEpochs::OnDialed(const absl::Status& status, TimePoint now) {
  if (status.ok() && works_ahead_) {
    if (HasAhead(fence_)) {
      ahead_->onward = true;
    }
    OnLinked();
  } else if (status.ok()) {
    onward_epoch_ = fence_;
    OnLinked();
  } else if (!MayAcceptLater(status)) {
    End(status);
  } else {
    phase_ = Phase::kBetweenTries;
    again_ = now + times_.dial_pause;
    status_ = status;
  }
}

void StageEpochs::OnLinked() {
  if (!kv_from_.empty()) {
    phase_ = Phase::kLinked;
  } else {
    End(absl::OkStatus());
  }
}

FenceStep StageEpochs::Carry() {
  phase_ = Phase::kCarrying;
  return {.act = FenceAct::kCarry,
          .epoch = fence_,
          .ahead = works_ahead_,
          .timeout = works_ahead_ ? 4 * place_.step_timeout : place_.step_timeout / 2,
          .kv_from = kv_from_};
}

void StageEpochs::OnCarried(bool carried) {
  if (works_ahead_ && HasAhead(fence_)) {
    ahead_->carried = carried;
  }
  End(absl::OkStatus());
}

void StageEpochs::End(absl::Status status) {
  phase_ = Phase::kDone;
  status_ = std::move(status);
}

// ---- The link that comes in, and its frames.

LinkVerdict StageEpochs::Accept(const v1::LinkOpen& open, TimePoint since, TimePoint now) {
  if (open.to_stage() != place_.stage || open.pipeline() != place_.pipeline ||
      open.from_node().empty() != (place_.stage == 0)) {
    return {.status =
                Refuse("WRONG_STAGE", "a link to stage " + std::to_string(open.to_stage()) +
                                          " came to stage " + std::to_string(place_.stage) +
                                          " of deployment " + std::to_string(place_.deployment))};
  }
  if (stopping_) {
    return {.status = Unloaded()};
  }
  if (HasAhead(open.epoch())) {
    LinkVerdict verdict{.link = ++links_, .ahead = true};
    verdict.replaced = std::exchange(ahead_->inbound, verdict.link);
    verdict.why = Refuse("LINK_REPLACED", "the sender opened the link again");
    return verdict;
  }
  if (epoch_ < open.epoch()) {
    if (now < AcceptsUntil(since)) {
      return {.waits = true};
    }
    return {.status = Refuse("EPOCH_NOT_LOADED", "a link of epoch " + std::to_string(open.epoch()) +
                                                     " came while epoch " + std::to_string(epoch_) +
                                                     " is loaded")};
  }
  if (epoch_ > open.epoch()) {
    return {.status = Refuse("STALE_EPOCH", "a link of epoch " + std::to_string(open.epoch()) +
                                                " came after the fence of epoch " +
                                                std::to_string(epoch_))};
  }
  // A second link of an epoch is the first one's sender trying again.
  LinkVerdict verdict{.link = ++links_};
  verdict.replaced = std::exchange(inbound_, verdict.link);
  verdict.why = Refuse("LINK_REPLACED", "the sender opened the link again");
  return verdict;
}

std::optional<v1::LinkFault> StageEpochs::OnInboundClosed(LinkId link, const absl::Status& status) {
  if (link != 0 && ahead_.has_value() && link == ahead_->inbound) {
    ahead_->inbound = 0;  // Its sender opens another one with the fence.
    return std::nullopt;
  }
  if (link == 0 || link != inbound_) {
    return std::nullopt;  // Ended by us.
  }
  inbound_ = 0;
  return Fault(epoch_, 0, status);
}

absl::Status StageEpochs::MayTake(LinkId link) const {
  if (link == 0 || link != inbound_ || stopping_) {
    return Refuse("LINK_REPLACED", "the link was ended by a fence");
  }
  return absl::OkStatus();
}

absl::Status StageEpochs::TooManySteps() const {
  return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_STEPS",
               "more steps came than may be in flight")
      .Node(place_.node)
      .Limit("steps_in_flight=" + std::to_string(place_.max_in_flight))
      .Fact("deployment", place_.deployment)
      .Fact("stage", place_.stage);
}

// ---- Faults and the end.

std::optional<v1::LinkFault> StageEpochs::OnStepFailed(uint64_t epoch, uint64_t step,
                                                       const absl::Status& status) {
  // A frame may name any epoch; the fault is one of the epoch that is loaded.
  return Fault(std::min(epoch, epoch_), step, status);
}

absl::Status StageEpochs::MaySend(uint64_t epoch) const {
  if (onward_epoch_ != epoch) {
    return Refuse("LINK_NOT_OPEN", "a step was computed while the link onward was not open");
  }
  return absl::OkStatus();
}

std::optional<v1::LinkFault> StageEpochs::Fault(uint64_t epoch, uint64_t step,
                                                const absl::Status& status) {
  if (HasAhead(epoch) && onward_epoch_ != epoch) {
    ahead_->onward = false;  // The fence opens another one.
    return std::nullopt;
  }
  if (stopping_ || epoch < wanted_ || faulted_ >= epoch) {
    return std::nullopt;
  }
  faulted_ = epoch;
  v1::LinkFault fault;
  fault.set_deployment(place_.deployment);
  fault.set_epoch(epoch);
  fault.set_step(step);
  fault.set_stage(place_.stage);
  *fault.mutable_error() = DetailOf(status);
  return fault;
}

LinkId StageEpochs::Stop() {
  stopping_ = true;
  return std::exchange(inbound_, 0);
}

absl::Status StageEpochs::Unloaded() const {
  return Refuse("UNLOADED", "the stage is being unloaded");
}

}  // namespace strata
