#include "cli/bench/load_loop.h"

#include <algorithm>

namespace strata::cli {
namespace {

constexpr milliseconds kLookEvery{100};

class LoadLoop {
 public:
  LoadLoop(const Workload& workload, const LoadOptions& options, const Clock& clock,
           LoadTarget* target)
      : workload_(workload),
        options_(options),
        clock_(clock),
        target_(*target),
        begin_(clock.Now()),
        recorder_(begin_, options.targets, options.on_answer),
        due_(begin_) {
    if (open()) {
      due_ += workload_.ArrivalGap(0);
    }
  }

  LoadReport Run(const std::function<bool()>& cancelled,
                 const std::function<void(const LoadProgress&)>& on_progress) {
    TimePoint look = begin_;
    while (true) {
      const TimePoint now = clock_.Now();
      if (now >= look) {
        look = now + kLookEvery;
        on_progress(Progress(now));
        if (!stopped_ && cancelled()) {
          stopped_ = true;
          target_.CancelAll();
        }
      }
      BeginDue(now);
      if (in_flight() == 0 && !MoreToCome(now)) {
        break;
      }
      target_.Poll(std::min(look, NextBegin(now)), &recorder_);
    }
    on_progress(Progress(clock_.Now()));
    return recorder_.Report();
  }

 private:
  bool open() const { return workload_.options().rate > 0; }
  uint32_t in_flight() const { return recorder_.begun() - recorder_.ended(); }

  // When the next request is due: in a closed loop, as soon as a client is free.
  TimePoint Due(TimePoint now) const { return open() ? due_ : now; }
  bool MoreToCome(TimePoint now) const {
    return !stopped_ && recorder_.begun() < options_.requests &&
           (!options_.duration.has_value() || Due(now) - begin_ < *options_.duration);
  }
  TimePoint NextBegin(TimePoint now) const {
    if (in_flight() >= options_.clients || !MoreToCome(now)) {
      return TimePoint::max();
    }
    return open() ? due_ : std::max(now, begin_ + options_.ramp * in_flight() / options_.clients);
  }

  void BeginDue(TimePoint now) {
    while (NextBegin(now) <= now) {
      const uint32_t request = recorder_.begun();
      const WorkloadRequest made = workload_.Make(request);
      const TimePoint sent = clock_.Now();
      recorder_.OnBegin(request, Due(sent), sent);
      target_.Start(request, made);
      if (open()) {
        due_ += workload_.ArrivalGap(request + 1);
      }
    }
  }

  LoadProgress Progress(TimePoint now) const {
    return {now - begin_, recorder_.begun(), recorder_.ended(), recorder_.failed(),
            recorder_.tokens_seen()};
  }

  const Workload& workload_;
  const LoadOptions& options_;
  const Clock& clock_;
  LoadTarget& target_;
  const TimePoint begin_;
  LoadRecorder recorder_;
  TimePoint due_;  // Of the next request, in an open loop.
  bool stopped_ = false;
};

}  // namespace

LoadReport RunLoad(const Workload& workload, const LoadOptions& options, const Clock& clock,
                   LoadTarget* target, const std::function<bool()>& cancelled,
                   const std::function<void(const LoadProgress&)>& on_progress) {
  return LoadLoop(workload, options, clock, target).Run(cancelled, on_progress);
}

}  // namespace strata::cli
