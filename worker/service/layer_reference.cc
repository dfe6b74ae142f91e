#include "worker/service/layer_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "common/limits.h"
#include "common/model/row_digest.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status BadCheck(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_CHECK",
               "the coordinator's ComputeLayers: " + what);
}

absl::Status UnknownCheck() {
  return Error(absl::StatusCode::kFailedPrecondition, "CHECK_UNKNOWN",
               "a layer was asked for of a check that is not under way here")
      .Hint("run the check again");
}

// What fits a stage's load does not help here.
absl::Status ForCheck(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  if (reason != "MEMORY_LIMIT" && reason != "HOST_MEMORY_LIMIT" && reason != "NUMERICS_CLASS") {
    return status;
  }
  v1::ErrorDetail detail = DetailOf(status);
  detail.set_hint(
      reason == "MEMORY_LIMIT"
          ? "raise --memory of this worker, or have another one compute with --node"
      : reason == "HOST_MEMORY_LIMIT"
          ? "raise --host-memory of this worker, or have another one compute with --node"
          : "have a worker of the same backend and version compute with --node");
  return StatusOf(detail);
}

// The pages of one sequence that has a stage to itself, by KV group.
struct Pages {
  explicit Pages(const StageSpec& spec) : numbers(spec.kv_pages.size()) {
    for (size_t group = 0; group < numbers.size(); ++group) {
      for (PageId page = 0; page < spec.kv_pages[group]; ++page) {
        numbers[group].push_back(page);
      }
      views.push_back({.first_page = 0, .pages = numbers[group]});
    }
  }
  std::vector<std::vector<PageId>> numbers;
  std::vector<PageTableView> views;
};

}  // namespace

absl::StatusOr<LayerRows> LayerRows::Of(const v1::ComputeLayers& first) {
  if (first.token_ids_size() < 1 || first.token_ids_size() > static_cast<int>(kMaxCheckTokens)) {
    return BadCheck(std::to_string(first.token_ids_size()) + " tokens, not 1 to " +
                    std::to_string(kMaxCheckTokens));
  }
  LayerRows rows;
  rows.check_ = first.check();
  rows.ids_.assign(first.token_ids().begin(), first.token_ids().end());
  if (!first.rows().empty()) {
    rows.next_ = first.load().first_layer();
    rows.hidden_.resize(first.rows().size() / sizeof(float));
    std::memcpy(rows.hidden_.data(), first.rows().data(), rows.hidden_.size() * sizeof(float));
    if (rows.next_ == 0 || first.rows().size() % sizeof(float) != 0 ||
        !std::all_of(rows.hidden_.begin(), rows.hidden_.end(),
                     [](float value) { return std::isfinite(value); })) {
      return BadCheck("rows that no layer before has made");
    }
  }
  return rows;
}

absl::StatusOr<v1::LayersComputed> LayerRows::Compute(const v1::ComputeLayers& message,
                                                      LoadContext context, Mutex* compute,
                                                      LoadCounters* counters,
                                                      Cancellation* cancel) {
  const v1::Load& load = message.load();
  if (load.first_layer() != next_ || load.last_layer() != next_) {
    return BadCheck("layers " + std::to_string(load.first_layer()) + "-" +
                    std::to_string(load.last_layer()) + " came where " + std::to_string(next_) +
                    " is the next");
  }
  // What can be refused is before anything is fetched.
  ASSIGN_OR_RETURN(const StageRequest request, CheckLoad(load, *context.backend));
  const ModelSpec& model = request.spec.model;
  const uint64_t tokens = ids_.size();
  for (const uint32_t id : ids_) {
    if (id >= model.vocab) {
      return BadCheck("token id " + std::to_string(id) + " is not in the vocabulary");
    }
  }
  if (tokens > load.context()) {
    return BadCheck("more tokens than the context");
  }
  if (next_ > 0 && hidden_.size() != tokens * model.hidden) {
    return BadCheck("rows of another size than the model's");
  }
  for (uint32_t group = 0; group < request.spec.kv_pages.size(); ++group) {
    if (KvBytesPerToken(model, next_, next_, group, 1) != 0 &&
        request.spec.kv_pages[group] * kPageTokens < tokens) {
      return BadCheck("too few KV pages for its tokens");
    }
  }
  const uint64_t row_bytes = uint64_t{model.hidden} * sizeof(float);
  context.reserve_memory = [reserve = std::move(context.reserve_memory),
                            own = tokens * row_bytes](uint64_t bytes) {
    const uint64_t free = reserve(bytes + own);
    return free > own ? free - own : 0;
  };
  ASSIGN_OR_RETURN(const LoadedStage stage, LoadStage(load, context, counters, cancel));
  hidden_.resize(tokens * model.hidden);
  v1::LayersComputed computed;
  std::vector<uint64_t> logits;
  RETURN_IF_ERROR(ComputeRows(stage, compute, &logits));
  computed.set_done(stage.spec.heads);
  computed.mutable_logits()->Add(logits.begin(), logits.end());
  v1::LayerDigest* digest = computed.add_layers();
  digest->set_layer(next_);
  const std::vector<uint64_t> rows = RowDigests(hidden_, model.hidden);
  digest->mutable_rows()->Add(rows.begin(), rows.end());
  if (message.returns_rows()) {
    computed.set_rows(hidden_.data(), hidden_.size() * sizeof(float));
  }
  ++next_;
  return computed;
}

absl::Status LayerRows::ComputeRows(const LoadedStage& stage, Mutex* compute,
                                    std::vector<uint64_t>* logits) {
  const StageSpec& spec = stage.spec;
  Shard& shard = *stage.shard;
  const size_t hidden = spec.model.hidden;
  const Pages pages(spec);
  const auto tokens = static_cast<uint32_t>(ids_.size());
  const uint32_t long_above = LongRotaryAbove(spec.model);
  const bool is_long = long_above != 0 && tokens + 1 > long_above;
  std::vector<float> head(spec.heads ? size_t{spec.max_batch_tokens} * spec.model.vocab : 0);
  for (uint32_t begin = 0; begin < tokens; begin += spec.max_batch_tokens) {
    const uint32_t rows = std::min(spec.max_batch_tokens, tokens - begin);
    const BatchItem item{.first_row = 0,
                         .rows = rows,
                         .position = begin,
                         .tables = pages.views,
                         .rotary_variant = is_long ? 1u : 0u};
    const std::span<float> values = std::span(hidden_).subspan(begin * hidden, rows * hidden);
    // Steps of deployments come in between.
    MutexLock lock(compute);
    RETURN_IF_ERROR(shard.Begin({.rows = rows,
                                 .token_ids = std::span(ids_).subspan(begin, rows),
                                 .items = std::span(&item, 1)}));
    RETURN_IF_ERROR(spec.embeds ? shard.Embed() : shard.SetResidual(values));
    RETURN_IF_ERROR(shard.Attention(next_));
    RETURN_IF_ERROR(shard.Mlp(next_));
    RETURN_IF_ERROR(shard.ReadResidual(values));
    if (spec.heads) {
      std::vector<uint32_t> all(rows);
      for (uint32_t row = 0; row < rows; ++row) {
        all[row] = row;
      }
      const std::span<float> out = std::span(head).first(size_t{rows} * spec.model.vocab);
      RETURN_IF_ERROR(shard.Head(all));
      RETURN_IF_ERROR(shard.ReadLogits(out));
      const std::vector<uint64_t> digests = RowDigests(out, spec.model.vocab);
      logits->insert(logits->end(), digests.begin(), digests.end());
    }
  }
  return absl::OkStatus();
}

LayerReference::LayerReference(Parts parts) : parts_(std::move(parts)) {
  thread_ = std::thread([this] { Loop(); });
}

LayerReference::~LayerReference() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (cancel_ != nullptr) {
      cancel_->Cancel();
    }
    changed_.NotifyAll();
  }
  thread_.join();
}

bool LayerReference::busy() const {
  MutexLock lock(&mutex_);
  return check_ != 0;
}

void LayerReference::End(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (check_ != 0 && !ending_) {
    ending_ = true;
    why_ = why;
    cancel_->Cancel();
    changed_.NotifyAll();
  }
}

void LayerReference::OnMessage(const v1::ComputeLayers& message, std::shared_ptr<Outbox> out) {
  if (!message.has_load()) {
    bool mine = false;
    {
      MutexLock lock(&mutex_);
      mine = check_ == message.check();
    }
    if (mine) {
      End(absl::OkStatus());
    }
    return;
  }
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    const bool first = message.token_ids_size() > 0;
    if (message.check() == 0) {
      refused = BadCheck("a check without a number");
    } else if (first && check_ != 0 && check_ != message.check()) {
      refused = Error(absl::StatusCode::kResourceExhausted, "CHECK_RUNNING",
                      "node '" + parts_.node + "' computes layers for another check")
                    .Limit("checks=1")
                    .Hint("wait until that has ended, or have another worker compute with --node");
    } else if (!first && message.check() == ended_ && !ended_why_.ok()) {
      refused = ended_why_;
    } else if ((!first || check_ != 0) &&
               (check_ != message.check() || ending_ || job_.has_value() || computing_)) {
      refused = UnknownCheck();
    } else {
      if (check_ == 0) {
        check_ = message.check();
        cancel_ = std::make_shared<Cancellation>();
      }
      job_ = Job{message, std::move(out)};
      changed_.NotifyAll();
      return;
    }
  }
  v1::LayersComputed computed;
  *computed.mutable_error() = DetailOf(refused);
  Answer(message.check(), std::move(computed), out.get());
}

void LayerReference::Answer(uint64_t check, v1::LayersComputed computed, Outbox* out) const {
  if (computed.has_error()) {
    computed.mutable_error()->set_node(parts_.node);
  }
  computed.set_check(check);
  v1::WorkerMessage message;
  *message.mutable_layers_computed() = std::move(computed);
  out->Send(std::move(message));
}

v1::LayersComputed LayerReference::Run(const v1::ComputeLayers& message, Cancellation* cancel) {
  const auto compute = [&]() -> absl::StatusOr<v1::LayersComputed> {
    if (message.token_ids_size() > 0) {
      ASSIGN_OR_RETURN(rows_, LayerRows::Of(message));
      if (counters_ == nullptr) counters_ = std::make_unique<LoadCounters>();
    }
    return rows_->Compute(message, parts_.context, parts_.compute, counters_.get(), cancel);
  };
  absl::StatusOr<v1::LayersComputed> computed = compute();
  v1::LayersComputed answer;
  if (computed.ok()) {
    answer = *std::move(computed);
  } else {
    *answer.mutable_error() = DetailOf(ForCheck(computed.status()));
  }
  answer.set_fetched_bytes(counters_ != nullptr ? counters_->fetch.fetched_bytes.load() : 0);
  return answer;
}

void LayerReference::Loop() {
  while (true) {
    std::optional<Job> job;
    std::shared_ptr<Cancellation> cancel;
    {
      MutexLock lock(&mutex_);
      while (!job_.has_value() && !ending_ && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (stopping_) {
        return;
      }
      job = std::exchange(job_, std::nullopt);
      cancel = cancel_;
      computing_ = job.has_value();
    }
    v1::LayersComputed computed;
    if (job.has_value()) {
      computed = Run(job->message, cancel.get());
    }
    bool over = computed.has_error() || computed.done();
    {
      MutexLock lock(&mutex_);
      over = over || ending_;
      computing_ = over;
    }
    bool answers = job.has_value();
    if (over) {
      // Before the answer: after it there may be another check.
      rows_.reset();
      counters_.reset();
      {
        MutexLock lock(&mutex_);
        ended_ = std::exchange(check_, 0);
        ended_why_ = absl::OkStatus();
        if (std::exchange(ending_, false)) {
          ended_why_ = why_;
          *computed.mutable_error() = DetailOf(why_);
          answers = answers && !why_.ok();
        }
        computing_ = false;
      }
      // Last: whom the memory is given to may at once ask what has become of the check.
      if (parts_.context.reserve_host_memory != nullptr) {
        parts_.context.reserve_host_memory(0);
      }
      parts_.context.reserve_memory(0);
    }
    if (answers) {
      Answer(job->message.check(), std::move(computed), job->out.get());
    }
  }
}

}  // namespace strata
