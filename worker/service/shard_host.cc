#include "worker/service/shard_host.h"

#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "common/status.h"
#include "worker/node/stage_epochs.h"
#include "worker/node/step_watch.h"
#include "worker/service/compute_queue.h"
#include "worker/service/kv_carrier.h"
#include "worker/service/step_log.h"

namespace strata {
namespace {

StagePlace PlaceOf(const ShardHostConfig& config) {
  return {.node = config.runner.node,
          .incarnation = config.incarnation,
          .deployment = config.runner.deployment,
          .pipeline = config.pipeline,
          .stage = config.runner.stage,
          .max_in_flight = config.max_in_flight,
          .next_node = config.next_node,
          .next_incarnation = config.next_incarnation,
          .step_timeout = config.step_timeout};
}

}  // namespace

// Does with links and threads what StageEpochs decides.
class ShardHost::Impl : public std::enable_shared_from_this<ShardHost::Impl> {
 public:
  Impl(ShardHostConfig config, std::unique_ptr<Shard> shard, const Clock* clock, Mutex* compute,
       LinkDialer* dialer, std::shared_ptr<ShardHostEvents> events)
      : config_(std::move(config)),
        place_{config_.model, config_.runner.deployment, config_.runner.stage},
        clock_(clock),
        dialer_(dialer),
        events_(std::move(events)),
        next_address_(config_.next_address),
        epochs_(PlaceOf(config_)),
        watch_(config_.step_timeout),
        queue_(config_.runner, epochs_.max_waiting(), std::move(shard), clock, compute,
               [this](ComputeQueue::Frame frame) { Deliver(std::move(frame)); }),
        carrier_(place_, &queue_, dialer_, clock_) {}

  void Start() {
    link_thread_ = std::thread([this] { LinkLoop(); });
  }

  void Fence(uint64_t epoch, const v1::NextHop* next) {
    MutexLock lock(&mutex_);
    if (next != nullptr) {
      next_address_ = next->address();
      epochs_.SetNext(*next);
    }
    epochs_.Fence(epoch);
    EndCarrying();
    changed_.NotifyAll();
  }

  void OpenAhead(uint64_t epoch, const v1::NextHop* next, const v1::KvSource* kv_from);
  absl::StatusOr<std::vector<v1::CarryKvPart>> GiveKv(const v1::CarryKvRequest& request,
                                                      bool begins);

  absl::StatusOr<std::shared_ptr<LinkSink>> AcceptLink(const v1::LinkOpen& open,
                                                       std::shared_ptr<InboundLink> link);
  std::unique_ptr<Shard> Stop();

  void Watch(nanoseconds passed) {
    // One that waits for another worker does not hang: its wait has an end of its own.
    if (watch_.Hangs(queue_.held_up() ? 0 : queue_.step_at_hand(), passed)) {
      events_->OnStepHangs();
    }
  }

  RunnerStats stats() const { return queue_.stats(); }
  uint64_t memory_bytes() const { return queue_.memory_bytes(); }
  StageReport Describe() const;

 private:
  class Sink;
  // What a fence does next, with the links that it ends.
  struct FenceWork {
    FenceStep step;
    std::shared_ptr<InboundLink> inbound;
    std::shared_ptr<FrameLink> onward;
    // Of those opened ahead, what it does not adopt.
    std::shared_ptr<InboundLink> ahead_inbound;
    std::shared_ptr<FrameLink> ahead_onward;
    std::shared_ptr<Cancellation> carrying;  // kCarry.
  };

  void Deliver(ComputeQueue::Frame frame);
  void LinkLoop();
  std::optional<FenceWork> NextWork();
  void Begin(FenceWork work);
  void Dial(const FenceStep& step);
  void Carry(const FenceWork& work);
  void EndCarrying() STRATA_REQUIRES(mutex_) {
    if (carrying_ != nullptr) {
      carrying_->Cancel();
    }
  }
  absl::Status Take(StepMessage message, LinkId id, const std::shared_ptr<InboundLink>& link);
  void OnInboundClosed(LinkId link, const absl::Status& status);
  // As StageEpochs::Fault, and tells it.
  void Fault(uint64_t epoch, uint64_t step, const absl::Status& status);
  void Tell(const std::optional<v1::LinkFault>& fault) {
    if (fault.has_value()) {
      events_->OnLinkFault(*fault);
    }
  }

  const ShardHostConfig config_;
  const StepPlace place_;
  const Clock* const clock_;
  LinkDialer* const dialer_;
  const std::shared_ptr<ShardHostEvents> events_;

  mutable Mutex mutex_;
  CondVar changed_;  // epochs_.
  std::string next_address_ STRATA_GUARDED_BY(mutex_);
  StageEpochs epochs_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<InboundLink> inbound_ STRATA_GUARDED_BY(mutex_);  // That of epochs_.inbound().
  // Used by the thread that computes while it sends; replaced by the link thread.
  std::shared_ptr<FrameLink> onward_ STRATA_GUARDED_BY(mutex_);
  // Opened ahead of the fence of their epoch, which puts them in the places of those two.
  std::string ahead_address_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<InboundLink> ahead_inbound_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<FrameLink> ahead_onward_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<Cancellation> carrying_ STRATA_GUARDED_BY(mutex_);  // Of the newest kCarry.

  StepWatch watch_;  // Of Watch's thread.
  ComputeQueue queue_;
  const KvCarrier carrier_;
  std::thread link_thread_;
};

// Holds the host's insides, not the host: a link may end after it.
class ShardHost::Impl::Sink : public LinkSink {
 public:
  Sink(std::shared_ptr<Impl> host, LinkId id, std::shared_ptr<InboundLink> link)
      : host_(std::move(host)), id_(id), link_(std::move(link)) {}
  absl::Status OnStep(StepMessage message) override {
    return host_->Take(std::move(message), id_, link_);
  }
  void OnClosed(const absl::Status& status) override { host_->OnInboundClosed(id_, status); }

 private:
  const std::shared_ptr<Impl> host_;
  const LinkId id_;
  const std::shared_ptr<InboundLink> link_;
};

absl::StatusOr<std::shared_ptr<LinkSink>> ShardHost::Impl::AcceptLink(
    const v1::LinkOpen& open, std::shared_ptr<InboundLink> link) {
  const TimePoint since = clock_->Now();
  LinkVerdict verdict;
  std::shared_ptr<InboundLink> replaced;
  {
    MutexLock lock(&mutex_);
    while (true) {
      const TimePoint now = clock_->Now();
      verdict = epochs_.Accept(open, since, now);
      if (!verdict.waits) {
        break;
      }
      changed_.WaitFor(&mutex_, epochs_.AcceptsUntil(since) - now);
    }
    RETURN_IF_ERROR(verdict.status);
    replaced = std::exchange(verdict.ahead ? ahead_inbound_ : inbound_, link);
  }
  if (verdict.replaced != 0) {
    replaced->Break(verdict.why);
  }
  return std::make_shared<Sink>(shared_from_this(), verdict.link, std::move(link));
}

absl::Status ShardHost::Impl::Take(StepMessage message, LinkId id,
                                   const std::shared_ptr<InboundLink>& link) {
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(epochs_.MayTake(id));
  }
  LogSequences(place_, message);
  // What a fence overtakes here the runner discards.
  if (!queue_.Add({.message = std::move(message), .link = link})) {
    MutexLock lock(&mutex_);
    return epochs_.TooManySteps();
  }
  return absl::OkStatus();
}

void ShardHost::Impl::OnInboundClosed(LinkId link, const absl::Status& status) {
  std::optional<v1::LinkFault> fault;
  {
    MutexLock lock(&mutex_);
    if (epochs_.inbound() == link) {
      inbound_ = nullptr;
    } else if (epochs_.ahead_inbound() == link) {
      ahead_inbound_ = nullptr;
    }
    fault = epochs_.OnInboundClosed(link, status);
  }
  Tell(fault);
}

void ShardHost::Impl::Fault(uint64_t epoch, uint64_t step, const absl::Status& status) {
  std::optional<v1::LinkFault> fault;
  {
    MutexLock lock(&mutex_);
    fault = epochs_.Fault(epoch, step, status);
  }
  Tell(fault);
}

void ShardHost::Impl::Deliver(ComputeQueue::Frame frame) {
  absl::StatusOr<ShardRunner::Output>& output = frame.output;
  if (!output.ok()) {
    std::optional<v1::LinkFault> fault;
    {
      MutexLock lock(&mutex_);
      fault = epochs_.OnStepFailed(frame.epoch, frame.step, output.status());
    }
    Tell(fault);
    frame.link->Break(output.status());
    return;
  }
  if (std::holds_alternative<ShardRunner::Discarded>(*output)) {
    return;
  }
  LogRejected(place_, frame.epoch, frame.step, *output);
  std::shared_ptr<FrameLink> onward;
  absl::Status sent;
  {
    MutexLock lock(&mutex_);
    sent = epochs_.MaySend(frame.epoch);
    onward = onward_;
  }
  if (!sent.ok()) {
    // Told below.
  } else if (auto* message = std::get_if<StepMessage>(&*output)) {
    sent = onward->Send(std::move(*message));
  } else {
    sent = onward->Send(std::move(std::get<ResultMessage>(*output)));
  }
  if (!sent.ok()) {
    Fault(frame.epoch, frame.step, sent);
  }
}

StageReport ShardHost::Impl::Describe() const {
  StageReport report;
  report.model = config_.model;
  report.stage = config_.runner.stage;
  for (const KvGroupSpec& group : config_.runner.spec.model.kv_groups) {
    report.kv_groups.push_back(KvGroupName(group));
  }
  report.weight_bytes = config_.weight_bytes;
  report.memory_bytes = queue_.memory_bytes();
  report.steps_waiting = queue_.waiting();
  report.work = queue_.work();
  report.runner = queue_.stats();
  return report;
}

// ---- Fences.

void ShardHost::Impl::LinkLoop() {
  while (std::optional<FenceWork> work = NextWork()) {
    switch (work->step.act) {
      case FenceAct::kBegin:
        Begin(*std::move(work));
        break;
      case FenceAct::kDial:
        Dial(work->step);
        break;
      case FenceAct::kCarry:
        Carry(*work);
        break;
      case FenceAct::kAcknowledge:
        events_->OnFenceAck(work->step.ack);
        break;
      case FenceAct::kWait:
        break;
    }
  }
}

// Waits for it; nullopt once the host stops.
std::optional<ShardHost::Impl::FenceWork> ShardHost::Impl::NextWork() {
  MutexLock lock(&mutex_);
  while (!epochs_.stopping()) {
    const TimePoint now = clock_->Now();
    FenceWork work;
    work.step = epochs_.Next(now);
    if (work.step.ended != 0) {
      work.inbound = std::exchange(inbound_, nullptr);
    }
    if (work.step.closes) {
      work.onward = std::exchange(onward_, nullptr);
    }
    if (work.step.clears) {
      work.ahead_onward = std::exchange(ahead_onward_, nullptr);
      if (work.step.adopts_onward) {
        onward_ = std::move(work.ahead_onward);
      }
      if (!work.step.adopts_inbound) {
        work.ahead_inbound = std::exchange(ahead_inbound_, nullptr);
      }
    }
    if (work.step.act == FenceAct::kCarry) {
      work.carrying = carrying_ = std::make_shared<Cancellation>();
    }
    if (work.step.act != FenceAct::kWait) {
      return work;
    }
    if (work.step.until == TimePoint::max()) {
      changed_.Wait(&mutex_);
    } else {
      changed_.WaitFor(&mutex_, work.step.until - now);
    }
  }
  return std::nullopt;
}

void ShardHost::Impl::Begin(FenceWork work) {
  if (work.step.clears) {
    queue_.Clear();
  }
  if (work.inbound != nullptr) {
    work.inbound->Break(work.step.why);
  }
  if (work.ahead_inbound != nullptr) {
    work.ahead_inbound->Break(work.step.why);
  }
  work.onward = nullptr;  // Closes it.
  work.ahead_onward = nullptr;
  const absl::Status status = queue_.Fence(work.step.epoch);
  MutexLock lock(&mutex_);
  epochs_.OnBegun(status, clock_->Now());
  if (work.step.adopts_inbound) {
    inbound_ = std::exchange(ahead_inbound_, nullptr);
  }
  changed_.NotifyAll();
}

void ShardHost::Impl::Dial(const FenceStep& step) {
  std::string address;
  {
    MutexLock lock(&mutex_);
    address = step.ahead ? ahead_address_ : next_address_;
  }
  auto link = dialer_->Dial(address, step.open, config_.max_in_flight + 1,
                            std::chrono::ceil<milliseconds>(step.timeout),
                            [weak = weak_from_this(), epoch = step.epoch](const auto& broken) {
                              if (auto self = weak.lock()) {
                                self->Fault(epoch, 0, broken);
                              }
                            });
  std::shared_ptr<FrameLink> replaced;  // Closed without mutex_: its callback may want that.
  MutexLock lock(&mutex_);
  if (link.ok()) {
    replaced = std::exchange(step.ahead ? ahead_onward_ : onward_, *std::move(link));
  }
  epochs_.OnDialed(link.status(), clock_->Now());
}

void ShardHost::Impl::Carry(const FenceWork& work) {
  const bool carried = carrier_.Carry(work.step, work.carrying.get());
  MutexLock lock(&mutex_);
  epochs_.OnCarried(carried);
}

absl::StatusOr<std::vector<v1::CarryKvPart>> ShardHost::Impl::GiveKv(
    const v1::CarryKvRequest& request, bool begins) {
  absl::StatusOr<std::vector<v1::CarryKvPart>> parts;
  RETURN_IF_ERROR(queue_.BetweenSteps([&](ShardRunner* runner) {
    parts = runner->GiveKv(request, begins);
    return parts.status();
  }));
  return parts;
}

void ShardHost::Impl::OpenAhead(uint64_t epoch, const v1::NextHop* next,
                                const v1::KvSource* kv_from) {
  std::shared_ptr<InboundLink> inbound;
  std::shared_ptr<FrameLink> onward;
  {
    MutexLock lock(&mutex_);
    if (!epochs_.TakesMore(epoch, kv_from)) {
      ahead_address_ = next != nullptr ? next->address() : next_address_;
      inbound = std::exchange(ahead_inbound_, nullptr);
      onward = std::exchange(ahead_onward_, nullptr);
    }
    epochs_.OpenAhead(epoch, next, kv_from);
    EndCarrying();
    changed_.NotifyAll();
  }
  if (inbound != nullptr) {
    inbound->Break(Error(absl::StatusCode::kFailedPrecondition, "LINK_REPLACED",
                         "links of another epoch are opened ahead"));
  }
}

std::unique_ptr<Shard> ShardHost::Impl::Stop() {
  std::shared_ptr<InboundLink> inbound;
  std::shared_ptr<InboundLink> ahead_inbound;
  std::shared_ptr<FrameLink> onward;
  std::shared_ptr<FrameLink> ahead_onward;
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    epochs_.Stop();
    EndCarrying();
    why = epochs_.Unloaded();
    inbound = std::exchange(inbound_, nullptr);
    ahead_inbound = std::exchange(ahead_inbound_, nullptr);
    queue_.Clear();
    changed_.NotifyAll();
  }
  for (const auto& link : {inbound, ahead_inbound}) {
    if (link != nullptr) {
      link->Break(why);
    }
  }
  // A fence uses the queue until its thread is gone.
  if (link_thread_.joinable()) {
    link_thread_.join();
  }
  std::unique_ptr<Shard> shard = queue_.Stop();
  {
    MutexLock lock(&mutex_);
    onward = std::exchange(onward_, nullptr);
    ahead_onward = std::exchange(ahead_onward_, nullptr);
  }
  onward = nullptr;  // Closes it, without mutex_: its callback may want that.
  ahead_onward = nullptr;
  return shard;
}

ShardHost::ShardHost(ShardHostConfig config, std::unique_ptr<Shard> shard, const Clock* clock,
                     Mutex* compute, LinkDialer* dialer, std::shared_ptr<ShardHostEvents> events)
    : impl_(std::make_shared<Impl>(std::move(config), std::move(shard), clock, compute, dialer,
                                   std::move(events))) {
  impl_->Start();
}

ShardHost::~ShardHost() { Stop(); }
void ShardHost::Fence(uint64_t epoch, const v1::NextHop* next) { impl_->Fence(epoch, next); }
void ShardHost::OpenAhead(uint64_t epoch, const v1::NextHop* next, const v1::KvSource* kv_from) {
  impl_->OpenAhead(epoch, next, kv_from);
}
absl::StatusOr<std::vector<v1::CarryKvPart>> ShardHost::GiveKv(const v1::CarryKvRequest& request,
                                                               bool begins) {
  return impl_->GiveKv(request, begins);
}
absl::StatusOr<std::shared_ptr<LinkSink>> ShardHost::AcceptLink(const v1::LinkOpen& open,
                                                                std::shared_ptr<InboundLink> link) {
  return impl_->AcceptLink(open, std::move(link));
}
std::unique_ptr<Shard> ShardHost::Stop() { return impl_->Stop(); }
void ShardHost::Watch(nanoseconds passed) { impl_->Watch(passed); }
RunnerStats ShardHost::stats() const { return impl_->stats(); }
StageReport ShardHost::Report() const { return impl_->Describe(); }
uint64_t ShardHost::memory_bytes() const { return impl_->memory_bytes(); }

}  // namespace strata
