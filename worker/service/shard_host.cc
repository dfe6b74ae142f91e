#include "worker/service/shard_host.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "common/status.h"
#include "worker/service/compute_queue.h"
#include "worker/service/step_log.h"

namespace strata {
namespace {

constexpr milliseconds kFenceOnItsWay{1000};
// One try to open a link; a newer fence or Stop is noticed between tries.
constexpr milliseconds kDialTry{1500};
constexpr milliseconds kDialPause{50};

// Whether the next stage may accept later what it refused now.
bool MayAcceptLater(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason != "WRONG_NODE" && reason != "WRONG_STAGE" && reason != "STALE_EPOCH";
}

}  // namespace

class ShardHost::Impl : public std::enable_shared_from_this<ShardHost::Impl> {
 public:
  Impl(ShardHostConfig config, std::unique_ptr<Shard> shard, const Clock* clock, Mutex* compute,
       LinkDialer* dialer, std::shared_ptr<ShardHostEvents> events)
      : config_(std::move(config)),
        place_{config_.model, config_.runner.deployment, config_.runner.stage},
        dialer_(dialer),
        events_(std::move(events)),
        // One place more than the steps in flight.
        queue_(config_.runner, config_.max_in_flight + size_t{1}, std::move(shard), clock, compute,
               [this](ComputeQueue::Frame frame) { Deliver(std::move(frame)); }) {}

  void Start() {
    link_thread_ = std::thread([this] { LinkLoop(); });
  }

  void Fence(uint64_t epoch) {
    MutexLock lock(&mutex_);
    wanted_epoch_ = std::max(wanted_epoch_, epoch);
    asked_epoch_ = std::max(asked_epoch_.value_or(0), epoch);
    changed_.NotifyAll();
  }

  absl::StatusOr<std::shared_ptr<LinkSink>> AcceptLink(const v1::LinkOpen& open,
                                                       std::shared_ptr<InboundLink> link);
  std::unique_ptr<Shard> Stop();

  void Watch(nanoseconds passed) {
    const uint64_t step = queue_.step_at_hand();
    watched_for_ = step != 0 && step == watched_step_ ? watched_for_ + passed : nanoseconds(0);
    watched_step_ = step;
    if (watched_for_ >= config_.step_timeout) {
      watched_for_ = nanoseconds(0);
      events_->OnStepHangs();
    }
  }

  RunnerStats stats() const { return queue_.stats(); }
  uint64_t memory_bytes() const { return queue_.memory_bytes(); }
  StageReport Describe() const;

 private:
  class Sink;

  void Deliver(ComputeQueue::Frame frame);
  void LinkLoop();
  void RunFence(uint64_t epoch);
  absl::Status OpenOnward(uint64_t epoch);
  bool Superseded(uint64_t epoch);
  uint64_t LoadedEpoch() const {
    MutexLock lock(&mutex_);
    return epoch_;
  }
  absl::Status Take(StepMessage message, const std::shared_ptr<InboundLink>& link);
  void OnInboundClosed(const InboundLink* link, const absl::Status& status);
  void Report(uint64_t epoch, uint64_t step, const absl::Status& status);
  absl::Status Refuse(std::string_view reason, const std::string& what) const;

  const ShardHostConfig config_;
  const StepPlace place_;
  LinkDialer* const dialer_;
  const std::shared_ptr<ShardHostEvents> events_;

  mutable Mutex mutex_;
  CondVar changed_;  // Epochs and stopping_.
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t wanted_epoch_ STRATA_GUARDED_BY(mutex_) = 0;  // Newest asked for.
  std::optional<uint64_t> asked_epoch_ STRATA_GUARDED_BY(mutex_);
  uint64_t epoch_ STRATA_GUARDED_BY(mutex_) = 0;    // Whose frames are taken; 0 before a fence.
  uint64_t faulted_ STRATA_GUARDED_BY(mutex_) = 0;  // Newest epoch whose fault was reported.
  std::shared_ptr<InboundLink> inbound_ STRATA_GUARDED_BY(mutex_);
  uint64_t onward_epoch_ STRATA_GUARDED_BY(mutex_) = 0;  // Of onward_, when it is open.
  // Used by the thread that computes while it sends; replaced by the link thread.
  std::shared_ptr<FrameLink> onward_ STRATA_GUARDED_BY(mutex_);

  // Of Watch's thread.
  uint64_t watched_step_ = 0;
  nanoseconds watched_for_{0};

  ComputeQueue queue_;
  std::thread link_thread_;
};

// Holds the host's insides, not the host: a link may end after it.
class ShardHost::Impl::Sink : public LinkSink {
 public:
  Sink(std::shared_ptr<Impl> host, std::shared_ptr<InboundLink> link)
      : host_(std::move(host)), link_(std::move(link)) {}
  absl::Status OnStep(StepMessage message) override {
    return host_->Take(std::move(message), link_);
  }
  void OnClosed(const absl::Status& status) override {
    host_->OnInboundClosed(link_.get(), status);
  }

 private:
  const std::shared_ptr<Impl> host_;
  const std::shared_ptr<InboundLink> link_;
};

absl::Status ShardHost::Impl::Refuse(std::string_view reason, const std::string& what) const {
  return Error(absl::StatusCode::kFailedPrecondition, reason, what)
      .Node(config_.runner.node)
      .Fact("deployment", config_.runner.deployment)
      .Fact("stage", config_.runner.stage);
}

absl::StatusOr<std::shared_ptr<LinkSink>> ShardHost::Impl::AcceptLink(
    const v1::LinkOpen& open, std::shared_ptr<InboundLink> link) {
  if (open.to_stage() != config_.runner.stage || open.pipeline() != config_.pipeline ||
      open.from_node().empty() != (config_.runner.stage == 0)) {
    return Refuse("WRONG_STAGE", "a link to stage " + std::to_string(open.to_stage()) +
                                     " came to stage " + std::to_string(config_.runner.stage) +
                                     " of deployment " + std::to_string(config_.runner.deployment));
  }
  const auto deadline = std::chrono::steady_clock::now() + kFenceOnItsWay;
  std::shared_ptr<InboundLink> replaced;
  {
    MutexLock lock(&mutex_);
    while (epoch_ < open.epoch() && !stopping_) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= nanoseconds(0)) {
        return Refuse("EPOCH_NOT_LOADED", "a link of epoch " + std::to_string(open.epoch()) +
                                              " came while epoch " + std::to_string(epoch_) +
                                              " is loaded");
      }
      changed_.WaitFor(&mutex_, left);
    }
    if (stopping_) {
      return Refuse("UNLOADED", "the stage is being unloaded");
    }
    if (epoch_ > open.epoch()) {
      return Refuse("STALE_EPOCH", "a link of epoch " + std::to_string(open.epoch()) +
                                       " came after the fence of epoch " + std::to_string(epoch_));
    }
    // A second link of an epoch is the first one's sender trying again.
    replaced = std::exchange(inbound_, link);
  }
  if (replaced != nullptr) {
    replaced->Break(Refuse("LINK_REPLACED", "the sender opened the link again"));
  }
  return std::make_shared<Sink>(shared_from_this(), std::move(link));
}

absl::Status ShardHost::Impl::Take(StepMessage message, const std::shared_ptr<InboundLink>& link) {
  {
    MutexLock lock(&mutex_);
    if (inbound_ != link || stopping_) {
      return Refuse("LINK_REPLACED", "the link was ended by a fence");
    }
  }
  LogSequences(place_, message);
  // What a fence overtakes here the runner discards.
  if (!queue_.Add({.message = std::move(message), .link = link})) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_STEPS",
                 "more steps came than may be in flight")
        .Node(config_.runner.node)
        .Limit("steps_in_flight=" + std::to_string(config_.max_in_flight))
        .Fact("deployment", config_.runner.deployment)
        .Fact("stage", config_.runner.stage);
  }
  return absl::OkStatus();
}

void ShardHost::Impl::OnInboundClosed(const InboundLink* link, const absl::Status& status) {
  uint64_t epoch = 0;
  {
    MutexLock lock(&mutex_);
    if (inbound_.get() != link) {
      return;  // Ended by us.
    }
    inbound_ = nullptr;
    epoch = epoch_;
    changed_.NotifyAll();
  }
  Report(epoch, 0, status);
}

void ShardHost::Impl::Report(uint64_t epoch, uint64_t step, const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (stopping_ || epoch < wanted_epoch_ || faulted_ >= epoch) {
      return;  // One fault ends an epoch.
    }
    faulted_ = epoch;
  }
  v1::LinkFault fault;
  fault.set_deployment(config_.runner.deployment);
  fault.set_epoch(epoch);
  fault.set_step(step);
  fault.set_stage(config_.runner.stage);
  *fault.mutable_error() = DetailOf(status);
  events_->OnLinkFault(fault);
}

void ShardHost::Impl::Deliver(ComputeQueue::Frame frame) {
  absl::StatusOr<ShardRunner::Output>& output = frame.output;
  if (!output.ok()) {
    // A frame may name any epoch; the fault is one of the epoch that is loaded.
    Report(std::min(frame.epoch, LoadedEpoch()), frame.step, output.status());
    frame.link->Break(output.status());
    return;
  }
  if (std::holds_alternative<ShardRunner::Discarded>(*output)) {
    return;
  }
  LogRejected(place_, frame.epoch, frame.step, *output);
  std::shared_ptr<FrameLink> onward;
  {
    MutexLock lock(&mutex_);
    if (onward_epoch_ == frame.epoch) {
      onward = onward_;
    }
  }
  absl::Status sent;
  if (onward == nullptr) {
    sent = Refuse("LINK_NOT_OPEN", "a step was computed while the link onward was not open");
  } else if (auto* message = std::get_if<StepMessage>(&*output)) {
    sent = onward->Send(std::move(*message));
  } else {
    sent = onward->Send(std::move(std::get<ResultMessage>(*output)));
  }
  if (!sent.ok()) {
    Report(frame.epoch, frame.step, sent);
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

bool ShardHost::Impl::Superseded(uint64_t epoch) {
  MutexLock lock(&mutex_);
  return stopping_ || wanted_epoch_ > epoch;
}

void ShardHost::Impl::LinkLoop() {
  while (true) {
    uint64_t epoch = 0;
    {
      MutexLock lock(&mutex_);
      while (!asked_epoch_.has_value() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (stopping_) {
        return;
      }
      epoch = *asked_epoch_;
      asked_epoch_.reset();
    }
    RunFence(epoch);
  }
}

void ShardHost::Impl::RunFence(uint64_t epoch) {
  std::shared_ptr<InboundLink> inbound;
  std::shared_ptr<FrameLink> onward;
  bool opens = false;
  {
    MutexLock lock(&mutex_);
    if (epoch > epoch_) {
      inbound = std::move(inbound_);
      inbound_ = nullptr;
      queue_.Clear();
    }
    // The same fence again finds its link open.
    opens = epoch >= epoch_ && onward_epoch_ != epoch;
    if (opens) {
      onward = std::move(onward_);
      onward_ = nullptr;
      onward_epoch_ = 0;
    }
    changed_.NotifyAll();
  }
  if (inbound != nullptr) {
    inbound->Break(
        Refuse("FENCED", "the link was ended by the fence of epoch " + std::to_string(epoch)));
  }
  onward = nullptr;  // Closes it.
  absl::Status status = queue_.Fence(epoch);
  if (status.ok()) {
    {
      MutexLock lock(&mutex_);
      epoch_ = std::max(epoch_, epoch);
      changed_.NotifyAll();
    }
    if (opens) {
      status = OpenOnward(epoch);
    }
  }
  if (Superseded(epoch)) {
    return;  // Nobody waits for this one any more.
  }
  v1::FenceAck ack;
  ack.set_deployment(config_.runner.deployment);
  ack.set_epoch(epoch);
  if (!status.ok()) {
    *ack.mutable_error() = DetailOf(status);
  }
  events_->OnFenceAck(ack);
}

absl::Status ShardHost::Impl::OpenOnward(uint64_t epoch) {
  v1::LinkOpen open;
  open.set_from_node(config_.runner.node);
  open.set_from_incarnation(config_.incarnation);
  open.set_to_node(config_.next_node);
  open.set_to_incarnation(config_.next_incarnation);
  open.set_deployment(config_.runner.deployment);
  open.set_epoch(epoch);
  open.set_pipeline(config_.pipeline);
  open.set_to_stage(config_.runner.stage + 1);
  const auto deadline = std::chrono::steady_clock::now() + config_.step_timeout;
  absl::Status status;
  while (!Superseded(epoch)) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left <= milliseconds(0)) {
      return status;
    }
    auto link = dialer_->Dial(config_.next_address, open, config_.max_in_flight + 1,
                              std::max(milliseconds(1), std::min(left, kDialTry)),
                              [weak = weak_from_this(), epoch](const absl::Status& broken) {
                                if (auto self = weak.lock()) {
                                  self->Report(epoch, 0, broken);
                                }
                              });
    if (link.ok()) {
      MutexLock lock(&mutex_);
      onward_ = *std::move(link);
      onward_epoch_ = epoch;
      return absl::OkStatus();
    }
    status = link.status();
    if (!MayAcceptLater(status)) {
      return status;
    }
    std::this_thread::sleep_for(kDialPause);
  }
  return Refuse("FENCED", "a newer fence came");
}

std::unique_ptr<Shard> ShardHost::Impl::Stop() {
  std::shared_ptr<InboundLink> inbound;
  std::shared_ptr<FrameLink> onward;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    inbound = std::move(inbound_);
    inbound_ = nullptr;
    queue_.Clear();
    changed_.NotifyAll();
  }
  if (inbound != nullptr) {
    inbound->Break(Refuse("UNLOADED", "the stage is being unloaded"));
  }
  // A fence uses the queue until its thread is gone.
  if (link_thread_.joinable()) {
    link_thread_.join();
  }
  std::unique_ptr<Shard> shard = queue_.Stop();
  {
    MutexLock lock(&mutex_);
    onward = std::move(onward_);
    onward_ = nullptr;
  }
  onward = nullptr;  // Closes it, without mutex_: its callback may want that.
  return shard;
}

ShardHost::ShardHost(ShardHostConfig config, std::unique_ptr<Shard> shard, const Clock* clock,
                     Mutex* compute, LinkDialer* dialer, std::shared_ptr<ShardHostEvents> events)
    : impl_(std::make_shared<Impl>(std::move(config), std::move(shard), clock, compute, dialer,
                                   std::move(events))) {
  impl_->Start();
}

ShardHost::~ShardHost() { Stop(); }
void ShardHost::Fence(uint64_t epoch) { impl_->Fence(epoch); }
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
