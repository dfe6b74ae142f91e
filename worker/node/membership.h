// A worker's membership in its cluster: its lives, each from a registration to the end of the
// control stream or of the lease.
#ifndef STRATA_WORKER_NODE_MEMBERSHIP_H_
#define STRATA_WORKER_NODE_MEMBERSHIP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "strata/v1/membership.pb.h"
#include "worker/node/lease_policy.h"

namespace strata {

struct MembershipTimes {
  // The coordinator dials back before it answers a registration.
  nanoseconds register_timeout = milliseconds(20'000);
  // Between two questions who answers, once the lease has lapsed.
  nanoseconds look_every = milliseconds(1000);
  // From the end of a life to the next attempt: doubled with each one that fails.
  nanoseconds first_backoff = milliseconds(200);
  nanoseconds longest_backoff = milliseconds(5000);
  nanoseconds shortest_beat = milliseconds(20);
};

// What is to be done next.
enum class MembershipAct {
  kWait,           // Nothing until MembershipStep::until, or until something happens.
  kRegister,       // BeginLife with a new incarnation, or OnUnreachable.
  kSendHeartbeat,  // Of MembershipStep::term.
  // Who answers at the coordinator's address, by a connection of its own: OnAnswer tells. Nothing
  // else is to be done until then.
  kAskWhoAnswers,
  kEndLife,  // EndLife, once all that is of this life has ended.
  // For people.
  kTellLapsed,
  kTellRenewed,
};

struct MembershipStep {
  MembershipAct act = MembershipAct::kWait;
  TimePoint until{0};
  uint64_t term = 0;
};

// One thread at a time. Time is handed in, and never goes back. Whoever drives it asks Next after
// everything that it was told, and does what that says.
class Membership {
 public:
  // `coordinator`: its address, for errors.
  explicit Membership(std::string coordinator, MembershipTimes times = {});

  MembershipStep Next(TimePoint now);

  // Answers to kRegister.
  void BeginLife(TimePoint now);
  void OnUnreachable(TimePoint now);

  // Of this life.
  void OnMessage(const v1::CoordinatorMessage& message, TimePoint now);
  void OnStreamEnded() { stream_ended_ = true; }
  // The incarnation of the process that answers; 0: nobody does.
  void OnAnswer(uint64_t found, TimePoint now);
  void BeatSoon() { beat_soon_ = true; }

  // The life is over; `stream` is what its control stream ended with. Why it is over.
  absl::Status EndLife(const absl::Status& stream, TimePoint now);

  bool registered() const { return phase_ == Phase::kJoined; }
  // Whether `why`, which a life ended with, is final: the very first registration was refused for a
  // reason that waiting does not mend.
  bool IsFinal(const absl::Status& why) const;

 private:
  enum class Phase { kApart, kRegistering, kJoined };

  bool Lapsed(TimePoint now) const { return lease_policy::HasLapsed(now, lease_end_); }
  nanoseconds lease() const { return milliseconds(terms_.lease_ms()); }
  void Renew(TimePoint now) { lease_end_ = now + lease(); }
  MembershipStep NextOfLease(TimePoint now);
  void JudgeLapsed(lease_policy::Coordinator who, TimePoint now);
  void BackOff(TimePoint now);

  const std::string coordinator_;
  const MembershipTimes times_;
  Phase phase_ = Phase::kApart;
  bool ever_registered_ = false;
  TimePoint again_{0};  // When to register, while apart.
  nanoseconds backoff_;

  // Of a life.
  bool stream_ended_ = false;
  absl::Status lapsed_;  // Why the life ends, when that is not its stream.
  v1::Registered terms_;
  TimePoint lease_end_{0};  // Before it is registered: of the registration.
  TimePoint next_beat_{0};
  TimePoint next_look_{0};
  bool beat_soon_ = false;
  bool asking_ = false;  // Who answers.
  bool asked_ = false;   // Since the heartbeat before.
  bool told_ = false;    // That the lease has lapsed.
  // The coordinator whose lease this is; 0: not known, so that whoever answers may be another one.
  uint64_t coordinator_incarnation_ = 0;
  std::optional<TimePoint> answers_since_;  // That one does again, since the lease lapsed.
};

}  // namespace strata

#endif  // STRATA_WORKER_NODE_MEMBERSHIP_H_
