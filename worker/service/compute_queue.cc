#include "worker/service/compute_queue.h"

#include <utility>
#include <variant>

#include "common/platform/platform.h"
#include "common/status.h"
#include "worker/runner/item_slice.h"

namespace strata {
namespace {

// Up to here a step may hold up the thread that serves all links.
constexpr milliseconds kShortStep{1};

// What this stage, the last one that saw the step, says of it; null when there is nothing.
v1::StageKv* OwnWords(absl::StatusOr<ShardRunner::Output>* output) {
  if (!output->ok()) {
    return nullptr;
  }
  auto last = [](auto* stages) { return stages->Mutable(stages->size() - 1); };
  if (auto* step = std::get_if<StepMessage>(&**output)) {
    return last(step->header.mutable_stages());
  }
  if (auto* result = std::get_if<ResultMessage>(&**output)) {
    return last(result->header.mutable_stages());
  }
  return nullptr;
}

template <typename Message>
uint64_t FrameBytes(const Message& message) {
  return message.header.ByteSizeLong() + message.payload.size() * sizeof(float);
}

uint64_t SentBytes(const ShardRunner::Output& output) {
  if (const auto* step = std::get_if<StepMessage>(&output)) {
    return FrameBytes(*step);
  }
  return FrameBytes(std::get<ResultMessage>(output));
}

}  // namespace

ComputeQueue::ComputeQueue(ShardRunnerConfig config, size_t max_waiting,
                           std::unique_ptr<Shard> shard, const Clock* clock, Mutex* compute,
                           DoneFn done)
    : done_(std::move(done)),
      clock_(clock),
      shard_(std::move(shard)),
      memory_bytes_(shard_->MemoryBytes()),
      may_compute_here_(!shard_->WaitsForWorkers()),
      runner_(std::in_place, std::move(config), shard_.get(), clock),
      compute_(compute),
      queue_(max_waiting) {
  thread_ = std::thread([this] { Loop(); });
}

ComputeQueue::~ComputeQueue() { Stop(); }

bool ComputeQueue::Add(Frame frame) {
  frame.added = clock_->Now();
  {
    MutexLock lock(&mutex_);
    const v1::StepFrame& header = frame.message.header;
    const bool here =
        may_compute_here_ && !HasSlices(header) && cost_.Within(header.rows(), kShortStep);
    switch (queue_.Add(&frame, here)) {
      case StepQueue<Frame>::Added::kRefused:
        return false;
      case StepQueue<Frame>::Added::kWaits:
        changed_.NotifyOne();
        return true;
      case StepQueue<Frame>::Added::kAtHand:
        break;
    }
  }
  const bool computed = ComputeHere(&frame);
  MutexLock lock(&mutex_);
  if (computed) {
    queue_.Done();
  } else {
    queue_.Return(std::move(frame));  // After a fence the runner discards it.
  }
  TellIdle();
  return true;
}

void ComputeQueue::Clear() {
  MutexLock lock(&mutex_);
  queue_.Clear();
}

uint64_t ComputeQueue::step_at_hand() const {
  MutexLock lock(&mutex_);
  return computing_ ? steps_begun_ : 0;
}

bool ComputeQueue::held_up() const {
  MutexLock lock(&mutex_);
  return shard_ != nullptr && shard_->IsHeldUp();
}

absl::Status ComputeQueue::Fence(uint64_t epoch) {
  MutexLock runner(&runner_mutex_);
  RETURN_IF_ERROR(shard_->BeginEpoch(epoch));
  if (shard_->TakeKvLost()) {
    runner_->DropAllSequences();
  }
  return runner_->Fence(epoch);
}

absl::Status ComputeQueue::BetweenSteps(
    const std::function<absl::Status(ShardRunner* runner)>& use) {
  MutexLock runner(&runner_mutex_);
  if (!runner_.has_value()) {
    return Error(absl::StatusCode::kFailedPrecondition, "UNLOADED", "the stage is unloaded");
  }
  return use(&*runner_);
}

void ComputeQueue::Loop() {
  NameThread("strata-compute");  // As those of the backend's pool, whose first it is.
  while (true) {
    std::optional<Frame> frame;
    {
      MutexLock lock(&mutex_);
      while (!queue_.ready() && !queue_.stopped()) {
        changed_.Wait(&mutex_);
      }
      if (queue_.stopped()) {
        return;
      }
      frame = queue_.Next();
    }
    {
      MutexLock runner(&runner_mutex_);
      MutexLock compute(compute_);
      Step(&*frame);
    }
    done_(*std::move(frame));
    MutexLock lock(&mutex_);
    queue_.Done();
    TellIdle();
  }
}

// False when a fence or another stage is at work: nobody waits here.
bool ComputeQueue::ComputeHere(Frame* frame) {
  if (!runner_mutex_.TryLock()) {
    return false;
  }
  if (!compute_->TryLock()) {
    runner_mutex_.Unlock();
    return false;
  }
  Step(frame);
  compute_->Unlock();
  runner_mutex_.Unlock();
  done_(std::move(*frame));
  return true;
}

void ComputeQueue::Step(Frame* frame) {
  frame->epoch = frame->message.header.epoch();
  frame->step = frame->message.header.step();
  const uint32_t rows = frame->message.header.rows();
  const uint32_t rows_begun = RowsBegun(frame->message.header);
  const uint64_t received_bytes = frame->message.received_bytes;
  const nanoseconds waited = clock_->Now() - frame->added;
  const auto start = std::chrono::steady_clock::now();
  {
    MutexLock lock(&mutex_);
    computing_ = true;
    ++steps_begun_;
  }
  const bool whole = !HasSlices(frame->message.header);
  frame->output = runner_->Step(std::move(frame->message));
  const auto took = std::chrono::steady_clock::now() - start;
  {
    MutexLock lock(&mutex_);
    if (whole) {  // Of others it is not the stage's time for their rows.
      cost_.Add(rows, took);
    }
    computing_ = false;
  }
  Note(frame, rows_begun, rows > 0, waited, received_bytes);
}

void ComputeQueue::Note(Frame* frame, uint32_t rows, bool computes, nanoseconds waited,
                        uint64_t received_bytes) {
  v1::StageKv* said = OwnWords(&frame->output);
  if (said == nullptr) {
    return;
  }
  said->set_wait_ms(ToMs(waited));
  said->set_received_bytes(received_bytes);
  const uint64_t sent_bytes = SentBytes(*frame->output);
  MutexLock lock(&mutex_);
  ++work_.steps;
  work_.rows += rows;
  work_.computed += nanoseconds(static_cast<int64_t>(said->compute_ms() * 1e6));
  work_.waited += waited;
  work_.received_bytes += received_bytes;
  work_.sent_bytes += sent_bytes;
  if (computes) {
    work_.step_time.Add(said->compute_ms() / 1e3);
  }
}

void ComputeQueue::TellIdle() {
  if (queue_.ready() || queue_.stopped()) {
    changed_.NotifyAll();
  }
}

std::unique_ptr<Shard> ComputeQueue::Stop() {
  {
    MutexLock lock(&mutex_);
    queue_.Stop();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  {
    MutexLock lock(&mutex_);
    while (queue_.at_hand()) {
      changed_.Wait(&mutex_);
    }
  }
  MutexLock runner(&runner_mutex_);
  MutexLock lock(&mutex_);
  if (runner_.has_value()) {
    final_stats_ = runner_->stats();
    // A link that ends late holds this object, and must not hold a stage's memory.
    runner_.reset();
  }
  return std::move(shard_);
}

RunnerStats ComputeQueue::stats() const {
  MutexLock lock(&mutex_);
  return runner_.has_value() ? runner_->stats() : final_stats_;
}

StageWork ComputeQueue::work() const {
  MutexLock lock(&mutex_);
  return work_;
}

size_t ComputeQueue::waiting() const {
  MutexLock lock(&mutex_);
  return queue_.waiting();
}

}  // namespace strata
