// The epochs of one loaded stage: its fences, the link whose frames it takes, the link onward, and
// what it reports of them.
#ifndef STRATA_WORKER_NODE_STAGE_EPOCHS_H_
#define STRATA_WORKER_NODE_STAGE_EPOCHS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  kCarry,        // Then OnCarried, at the next Fence, OpenAhead or Stop at the latest.
  kAcknowledge,  // Send `ack`.
};

struct FenceStep {
  FenceAct act = FenceAct::kWait;
  TimePoint until{0};
  // kBegin: breaks `ended` with `why`, unless it is 0; drops the frames that wait, if `clears`, and
  // closes what was opened ahead and is not adopted; closes the link onward, if `closes`, for the
  // adopted one; then fences the runner for `epoch` between two steps, and has the adopted link for
  // its inbound one.
  uint64_t epoch = 0;
  LinkId ended = 0;
  absl::Status why = absl::OkStatus();
  bool clears = false;
  bool closes = false;
  bool adopts_onward = false;
  bool adopts_inbound = false;
  // kDial.
  bool ahead = false;  // Beside the link onward that is in use.
  v1::LinkOpen open = {};
  nanoseconds timeout{0};  // Of kCarry too.
  // kCarry: takes over KV from these; if `ahead`, pages from the first one on, while those stages
  // serve, else what is left.
  std::vector<v1::KvSource> kv_from = {};
  v1::FenceAck ack = {};
};

// Whether a link that comes in is accepted.
struct LinkVerdict {
  bool waits = false;  // Ask again once something happened, or at the end of what it may wait.
  absl::Status status = absl::OkStatus();  // Why it is refused.
  LinkId link = 0;                         // Of the accepted one.
  bool ahead = false;                      // That is beside the one whose frames are taken.
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
  // Opens the link onward for `epoch`, to `next` (null: as from now on), beside the one in use, and
  // tells the coordinator whether that worked. One that comes in for `epoch` is accepted beside the
  // one in use as well. Neither carries a frame before Fence(epoch), which finds them open; another
  // fence closes both, as does the next call. Of no account where a newer epoch was asked for.
  // `kv_from` (null: none): KV is taken over from there, before the answer to this and to that
  // fence; where it cannot be, the answer is the same, but for FenceAck.carried. The same epoch
  // again names another one that KV is taken over from, too: links stay as they are, and the answer
  // is to both.
  void OpenAhead(uint64_t epoch, const v1::NextHop* next, const v1::KvSource* kv_from = nullptr);
  // One fence is at work at a time: whoever drives it asks Next after everything that it was told.
  FenceStep Next(TimePoint now);
  void OnBegun(const absl::Status& status, TimePoint now);
  // Errors: of dialling.
  void OnDialed(const absl::Status& status, TimePoint now);
  // kCarry is done; whether all of it was taken over.
  void OnCarried(bool carried);

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
  // Whether links of that epoch are opened ahead; the one that was accepted so; 0: none.
  bool TakesMore(uint64_t epoch, const v1::KvSource* kv_from) const {
    return HasAhead(epoch) && kv_from != nullptr;  // OpenAhead leaves its links as they are.
  }
  bool HasAhead(uint64_t epoch) const { return ahead_.has_value() && ahead_->epoch == epoch; }
  LinkId ahead_inbound() const { return ahead_.has_value() ? ahead_->inbound : 0; }

 private:
  enum class Phase {
    kIdle,
    kBeginning,
    kDialing,
    kBetweenTries,
    kLinked,  // KV is to be taken over next.
    kCarrying,
    kDone
  };

  // Links that were opened ahead of the fence of their epoch.
  struct Ahead {
    uint64_t epoch = 0;
    v1::NextHop next = {};
    bool onward = false;  // Is open.
    LinkId inbound = 0;
    std::vector<v1::KvSource> kv_from = {};
    bool carried = false;
  };

  bool Superseded() const {
    return works_ahead_ ? asked_.has_value() || asked_ahead_ : wanted_ > fence_;
  }
  // The link onward is to be opened, within the step timeout.
  void BeginDialling(TimePoint now);
  FenceStep Begin();
  // What becomes of the links that were opened ahead, now that a newer epoch begins.
  void TakeAhead(FenceStep* step);
  FenceStep Dial(TimePoint now);
  v1::LinkOpen OpenOnward() const;
  FenceStep Carry();
  // The link onward is open.
  void OnLinked();
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
  uint64_t fence_ = 0;        // Its epoch.
  bool works_ahead_ = false;  // It is none: links are opened ahead for that epoch.
  bool opens_ = false;        // The link onward.
  TimePoint deadline_{0};     // For that.
  TimePoint again_{0};        // When to dial, between tries.
  absl::Status status_;       // Of the try before; once done, of the fence.

  std::optional<Ahead> ahead_;
  std::vector<v1::KvSource> kv_from_;  // What the epoch at work takes over.
  bool asked_ahead_ = false;           // It is to be opened.
};

}  // namespace strata

#endif  // STRATA_WORKER_NODE_STAGE_EPOCHS_H_
