// The epochs of one loaded stage: its fences, the link whose frames it takes, the link onward, and
// what it reports of them.
#ifndef STRATA_WORKER_NODE_STAGE_EPOCHS_H_
#define STRATA_WORKER_NODE_STAGE_EPOCHS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/clock.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// Where a stage stands.
struct StagePlace {
  std::string node;
  uint64_t incarnation = 0;  // The node's.
  uint64_t deployment = 0;
  uint32_t pipeline = 0;
  uint32_t stage = 0;
  uint32_t max_in_flight = 2;  // Steps.
  // Whom to send to: the next stage, or the coordinator (node empty) after the last one.
  std::string next_node;
  uint64_t next_incarnation = 0;
  nanoseconds step_timeout = milliseconds(10'000);
};

struct StageTimes {
  // How long a link may wait for the fence of its epoch.
  nanoseconds fence_on_its_way = milliseconds(1000);
  // One try to open a link; a newer fence is noticed between tries.
  nanoseconds dial_try = milliseconds(1500);
  nanoseconds dial_pause = milliseconds(50);
};

// An inbound link that was accepted; 0: none.
using LinkId = uint64_t;

// What a fence has to have done next.
enum class FenceAct {
  kWait,         // Nothing until FenceStep::until, or until something happens.
  kBegin,        // Then OnBegun.
  kDial,         // Then OnDialed.
  kAcknowledge,  // Send `ack`.
};

struct FenceStep {
  FenceAct act = FenceAct::kWait;
  TimePoint until{0};
  // kBegin: breaks `ended` with `why`, unless it is 0; drops the frames that wait, if `clears`;
  // closes the link onward, if `closes`; then fences the runner for `epoch` between two steps.
  uint64_t epoch = 0;
  LinkId ended = 0;
  absl::Status why = absl::OkStatus();
  bool clears = false;
  bool closes = false;
  // kDial.
  v1::LinkOpen open = {};
  nanoseconds timeout{0};
  v1::FenceAck ack = {};
};

// Whether a link that comes in is accepted.
struct LinkVerdict {
  bool waits = false;  // Ask again once something happened, or at the end of what it may wait.
  absl::Status status = absl::OkStatus();  // Why it is refused.
  LinkId link = 0;                         // Of the accepted one.
  LinkId replaced = 0;                     // To be broken with `why`, unless it is 0.
  absl::Status why = absl::OkStatus();
};

// One thread at a time. Time is handed in. Faults that are returned are to be sent to the
// coordinator.
class StageEpochs {
 public:
  explicit StageEpochs(StagePlace place, StageTimes times = {});

  // Ends the links of older epochs, waits for the step at hand, opens the link onward for `epoch`
  // (retrying within step_timeout, since the next stage may not have heard of it yet), and tells
  // the coordinator whether that worked. A newer fence replaces one that is still at work.
  void Fence(uint64_t epoch);
  // Whom to send to from the next fence on.
  void SetNext(const v1::NextHop& next);
  // One fence is at work at a time: whoever drives it asks Next after everything that it was told.
  FenceStep Next(TimePoint now);
  void OnBegun(const absl::Status& status, TimePoint now);
  // Errors: of dialling.
  void OnDialed(const absl::Status& status, TimePoint now);

  // `since`: when the link came. FAILED_PRECONDITION: WRONG_STAGE, STALE_EPOCH, EPOCH_NOT_LOADED,
  // UNLOADED.
  LinkVerdict Accept(const v1::LinkOpen& open, TimePoint since, TimePoint now);
  TimePoint AcceptsUntil(TimePoint since) const { return since + times_.fence_on_its_way; }
  std::optional<v1::LinkFault> OnInboundClosed(LinkId link, const absl::Status& status);

  // Whether a frame that came on the link is taken: LINK_REPLACED.
  absl::Status MayTake(LinkId link) const;
  // Frames that may wait: one more than steps may be in flight. TOO_MANY_STEPS beyond.
  size_t max_waiting() const { return place_.max_in_flight + size_t{1}; }
  absl::Status TooManySteps() const;
  // A frame could not be computed; its link is to be broken with `status`.
  std::optional<v1::LinkFault> OnStepFailed(uint64_t epoch, uint64_t step,
                                            const absl::Status& status);
  // Whether what was computed in `epoch` can be sent on: LINK_NOT_OPEN.
  absl::Status MaySend(uint64_t epoch) const;
  // A step could not be sent, or (step 0) the link onward of `epoch` broke. One fault ends an
  // epoch: further ones are not told.
  std::optional<v1::LinkFault> Fault(uint64_t epoch, uint64_t step, const absl::Status& status);

  // The stage is being unloaded: nothing is accepted or told any more. The inbound link, to be
  // broken with Unloaded().
  LinkId Stop();
  absl::Status Unloaded() const;

  bool stopping() const { return stopping_; }
  // Whose frames are taken; 0 before a fence.
  uint64_t epoch() const { return epoch_; }
  LinkId inbound() const { return inbound_; }

 private:
  enum class Phase { kIdle, kBeginning, kDialing, kBetweenTries, kDone };

  bool Superseded() const { return wanted_ > fence_; }
  FenceStep Begin();
  FenceStep Dial(TimePoint now);
  v1::LinkOpen OpenOnward() const;
  void End(absl::Status status);
  absl::Status Refuse(std::string_view reason, const std::string& what) const;

  StagePlace place_;
  const StageTimes times_;
  bool stopping_ = false;
  uint64_t wanted_ = 0;            // Newest epoch that was asked for.
  std::optional<uint64_t> asked_;  // Of the fence that begins next.
  uint64_t epoch_ = 0;
  uint64_t faulted_ = 0;  // Newest epoch whose fault was reported.
  LinkId links_ = 0;      // Accepted ones.
  LinkId inbound_ = 0;
  uint64_t onward_epoch_ = 0;  // Of the link onward, when it is open.

  // The fence at work.
  Phase phase_ = Phase::kIdle;
  uint64_t fence_ = 0;     // Its epoch.
  bool opens_ = false;     // The link onward.
  TimePoint deadline_{0};  // For that.
  TimePoint again_{0};     // When to dial, between tries.
  absl::Status status_;    // Of the try before; once done, of the fence.
};

}  // namespace strata

#endif  // STRATA_WORKER_NODE_STAGE_EPOCHS_H_
