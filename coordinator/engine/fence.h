// Whether steps may be sent: the pipeline's epoch, what it waits for, how often it failed in a row,
// and for how long it has been out of work. One state with the transitions between; the engine does
// what they ask for.
//
//   new ----> fencing ----> resync ----> running
//              ^    |          |            |
//              |    v          v            v       a fault: a fence at once, or after a backoff
//              +-- backoff <---+------------+
//
// From every state to suspended (the stages hold nothing), and from there to fencing; from every
// state to stopped, for ever.
#ifndef STRATA_COORDINATOR_ENGINE_FENCE_H_
#define STRATA_COORDINATOR_ENGINE_FENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/engine/engine.h"

namespace strata {

// `"a", "b"`.
std::string QuotedNames(const std::vector<std::string>& names);

// One thread.
class Fence {
 public:
  // `epoch`: of the first fence. One that is not acknowledged within `step_timeout` failed, unless
  // BeginFence is told to be less patient. When no step could be sent until `recovery_timeout`
  // after that, counted from the last sign of life, the outage is too long.
  Fence(uint64_t epoch, nanoseconds step_timeout, nanoseconds recovery_timeout);

  uint64_t epoch() const { return epoch_; }
  PipelineState state() const;
  // Any step may be sent.
  bool running() const { return Is<Running>(); }
  bool fencing() const { return Is<Fencing>(); }
  // Results may come: of the resynchronisation, or of any step.
  bool expects_results() const { return Is<Resync>() || Is<Running>(); }
  // Whether a fault of the links of `epoch` is news.
  bool HeedsLinkFault(uint64_t epoch) const;
  // The outage lasted too long, or faults went on: sessions were failed, and new ones are refused,
  // until a step is committed or Resume.
  bool down() const { return std::holds_alternative<Down>(outage_); }
  // The newest fault. Ok: there was none since the last Resume.
  const absl::Status& last_fault() const { return last_fault_; }
  // Why the stages were lost, from LoseStages until Suspend or Resume; else ok.
  const absl::Status& stages_lost() const { return stages_lost_; }

  // Every stage is loaded: the first fence is to be sent.
  void Start(TimePoint now);
  // All stages acknowledged the fence of `epoch`: the epoch's first step is to be sent. False: it
  // is of a fence that was given up.
  bool OnFenced(uint64_t epoch);
  // A step was committed, and nothing is wrong.
  void OnCommitted();

  // A fault, in any state that OnLinkFault heeds or in which results are expected. `since`: the
  // last sign of life; what follows before a step is committed belongs to the same outage. Recover
  // is to follow.
  void NoteFault(const absl::Status& status, TimePoint since, TimePoint now);
  // Whether so many faults came in a row that the sessions are not to wait any more.
  bool FaultsGoOn() const;
  // Whether a fence of the next epoch is to be sent at once, with that patience; else BackoffOver
  // says when.
  bool Recover(TimePoint now, nanoseconds patience);
  // The sessions are failed.
  void GoDown() { outage_ = Down{}; }

  // What has come with time. A fence that timed out is sent again, more and more rarely: the worker
  // may only have been away. `missing`: nodes that did not acknowledge it, in the order of stages.
  // A stage acknowledges once the next one took its link, so that the last of them is the one at
  // fault.
  bool FenceTimedOut(TimePoint now) const;
  void GiveUpFence(const std::vector<std::string>& missing, TimePoint now);
  bool OutageTooLong(TimePoint now) const;
  bool BackoffOver(TimePoint now) const;
  // The next epoch begins, and its fence is to be sent. It failed if it is not acknowledged within
  // `patience`.
  void BeginFence(TimePoint now, nanoseconds patience);
  // When one of these is to come true.
  std::optional<TimePoint> NextWake() const;

  // The stages hold nothing, and are loaded anew.
  void Suspend();
  // Suspended because of `why`; `since`: the last sign of life. The outage is too long `patience`
  // after the step timeout, counted from there.
  void LoseStages(const absl::Status& why, TimePoint since, nanoseconds patience, TimePoint now);
  // Out of being suspended: the fence of `epoch`, a newer one, is to be sent. What went wrong
  // before is forgotten.
  void Resume(uint64_t epoch, TimePoint now);
  void Stop() { state_ = Stopped{}; }

  // What sessions are failed and refused with. `unfenced`: as of GiveUpFence, of the fence that is
  // waited for.
  absl::Status DownStatus(const std::vector<std::string>& unfenced) const;

 private:
  struct New {};
  struct Fencing {
    TimePoint gives_up_at{0};
  };
  struct Resync {};
  struct Running {};
  struct Backoff {
    TimePoint until{0};
  };
  struct Suspended {};
  struct Stopped {};

  // While no step can be sent: when the sessions fail; and that they did.
  struct NoOutage {};
  struct Waiting {
    TimePoint gives_up_at{0};
  };
  struct Down {};

  template <typename State>
  bool Is() const {
    return std::holds_alternative<State>(state_);
  }
  void BeginOutage(TimePoint since, nanoseconds patience, TimePoint now);

  const nanoseconds step_timeout_;
  const nanoseconds recovery_timeout_;
  uint64_t epoch_;
  std::variant<New, Fencing, Resync, Running, Backoff, Suspended, Stopped> state_;
  std::variant<NoOutage, Waiting, Down> outage_;
  int faults_in_a_row_ = 0;
  absl::Status last_fault_;
  absl::Status stages_lost_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_FENCE_H_
