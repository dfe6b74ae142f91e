#include "worker/node/membership.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace strata {
namespace {

// Whether the coordinator's answer stays the same until somebody changes something.
bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

Membership::Membership(std::string coordinator, MembershipTimes times)
    : coordinator_(std::move(coordinator)), times_(times), backoff_(times.first_backoff) {}

MembershipStep Membership::Next(TimePoint now) {
  switch (phase_) {
    case Phase::kApart:
      if (now < again_) {
        return {.until = again_};
      }
      return {.act = MembershipAct::kRegister};
    case Phase::kRegistering:
      if (stream_ended_) {
        return {.act = MembershipAct::kEndLife};
      }
      if (now < lease_end_) {
        return {.until = lease_end_};
      }
      lapsed_ = Error(absl::StatusCode::kDeadlineExceeded, "REGISTER_TIMEOUT",
                      "the coordinator at " + coordinator_ + " did not answer the registration");
      return {.act = MembershipAct::kEndLife};
    case Phase::kJoined:
      if (stream_ended_ || !lapsed_.ok()) {
        return {.act = MembershipAct::kEndLife};
      }
      return NextOfLease(now);
  }
  return {};
}

MembershipStep Membership::NextOfLease(TimePoint now) {
  if (asking_) {
    return {.until = TimePoint::max()};
  }
  const bool lapsed = Lapsed(now);
  if (lapsed != told_) {
    told_ = lapsed;
    if (!lapsed) {
      answers_since_.reset();
    }
    return {.act = lapsed ? MembershipAct::kTellLapsed : MembershipAct::kTellRenewed};
  }
  if (lapsed && now >= next_look_) {
    asking_ = true;
    return {.act = MembershipAct::kAskWhoAnswers};
  }
  if (now < next_beat_ && !beat_soon_) {
    const TimePoint look = lapsed ? next_look_ : lease_end_;
    return {.until = look > now ? std::min(next_beat_, look) : next_beat_};
  }
  if (coordinator_incarnation_ == 0 && !lapsed && !asked_) {
    asking_ = true;
    return {.act = MembershipAct::kAskWhoAnswers};
  }
  asked_ = false;
  beat_soon_ = false;
  next_beat_ =
      now + std::max<nanoseconds>(times_.shortest_beat, milliseconds(terms_.heartbeat_ms()));
  return {.act = MembershipAct::kSendHeartbeat, .term = terms_.term()};
}

void Membership::BeginLife(TimePoint now) {
  phase_ = Phase::kRegistering;
  stream_ended_ = false;
  lapsed_ = absl::OkStatus();
  terms_.Clear();
  lease_end_ = now + times_.register_timeout;
  next_look_ = TimePoint(0);
  asking_ = false;
  asked_ = false;
  told_ = false;
  coordinator_incarnation_ = 0;
  answers_since_.reset();
}

void Membership::OnUnreachable(TimePoint now) { BackOff(now); }

void Membership::OnMessage(const v1::CoordinatorMessage& message, TimePoint now) {
  if (message.has_registered() && phase_ != Phase::kApart) {
    if (phase_ == Phase::kRegistering) {
      next_beat_ = now;
    }
    phase_ = Phase::kJoined;
    ever_registered_ = true;
    backoff_ = times_.first_backoff;
    terms_ = message.registered();
    Renew(now);
  } else if (message.has_lease_renewed() && phase_ == Phase::kJoined &&
             message.lease_renewed().term() == terms_.term()) {
    Renew(now);
  }
}

void Membership::OnAnswer(uint64_t found, TimePoint now) {
  using lease_policy::Coordinator;
  if (!std::exchange(asking_, false) || phase_ != Phase::kJoined) {
    return;  // Of a life before.
  }
  if (!told_) {  // Asked in order to know it again.
    coordinator_incarnation_ = found;
    asked_ = true;
    return;
  }
  next_look_ = now + times_.look_every;
  if (Lapsed(now)) {  // It may have been renewed meanwhile.
    JudgeLapsed(found == 0                          ? Coordinator::kNobody
                : found == coordinator_incarnation_ ? Coordinator::kSame
                                                    : Coordinator::kAnother,
                now);
  }
}

void Membership::JudgeLapsed(lease_policy::Coordinator who, TimePoint now) {
  using lease_policy::Coordinator;
  if (who != Coordinator::kSame) {
    answers_since_.reset();
  } else if (!answers_since_.has_value()) {
    answers_since_ = now;
  }
  if (lease_policy::EndsLife(who, now - answers_since_.value_or(now), lease())) {
    lapsed_ = Error(absl::StatusCode::kUnavailable, "LEASE_LAPSED",
                    who == Coordinator::kAnother
                        ? "another coordinator answers at " + coordinator_ +
                              ", so that the lease of the one before is over"
                        : "the coordinator did not renew the lease for " +
                              std::to_string(terms_.lease_ms()) + " ms and longer");
  }
}

absl::Status Membership::EndLife(const absl::Status& stream, TimePoint now) {
  const bool was_registered = registered();
  phase_ = Phase::kApart;
  BackOff(now);
  if (!lapsed_.ok()) {
    return lapsed_;
  }
  return stream.ok()
             ? Error(absl::StatusCode::kUnavailable, "STREAM_ENDED", "it ended the control stream")
         : was_registered ? Annotate(stream, "the control stream broke")
                          : stream;
}

void Membership::BackOff(TimePoint now) {
  again_ = now + backoff_;
  backoff_ = std::min(backoff_ * 2, times_.longest_backoff);
}

bool Membership::IsFinal(const absl::Status& why) const {
  return !ever_registered_ && IsRefusal(why);
}

}  // namespace strata
