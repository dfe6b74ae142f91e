#include "worker/runner/shard_runner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/fingerprint.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/runner/command_runner.h"
#include "worker/runner/item_acceptor.h"
#include "worker/runner/item_slice.h"
#include "worker/runner/kv_giver.h"
#include "worker/runner/kv_pool.h"
#include "worker/runner/kv_taker.h"
#include "worker/runner/page_layers.h"
#include "worker/runner/result_builder.h"
#include "worker/runner/sequence_table.h"
#include "worker/runner/stage_compute.h"
#include "worker/runner/step_checks.h"
#include "worker/runner/step_computer.h"
#include "worker/runner/step_policy.h"
#include "worker/runner/token_masks.h"

namespace strata {
namespace {

std::vector<Fingerprint> Roots(const ShardRunnerConfig& config) {
  std::vector<Fingerprint> roots;
  for (uint32_t variant = 0; variant < RotaryVariants(config.spec.model); ++variant) {
    roots.push_back(FingerprintRoot(config.deployment, config.weights_digest, config.numerics_class,
                                    /*adapter_digest=*/"", variant));
  }
  return roots;
}

// Later stages go by the rows' digests.
void DropEmbeddingValues(v1::StepFrame* frame) {
  for (v1::StepItem& item : *frame->mutable_items()) {
    for (v1::EmbeddingRow& row : *item.mutable_embedding_rows()) {
      row.clear_values();
    }
  }
}

}  // namespace

class ShardRunner::Impl {
 public:
  Impl(ShardRunnerConfig config, Shard* shard, const Clock* clock)
      : config_(std::move(config)),
        clock_(clock),
        epoch_(config_.epoch),
        pool_(config_.spec.kv_pages),
        stage_{config_.spec.first_layer, config_.spec.last_layer},
        table_(config_.spec, Roots(config_), &pool_, shard),
        masks_(config_.spec.model.vocab),
        acceptor_(&config_.spec, &table_, &masks_),
        result_(config_.spec.heads ? config_.spec.model.vocab : 0, &masks_),
        computer_(&config_.spec, &table_, shard, &result_, [this] { CountBackendFailure(); }),
        shard_(shard),
        taker_(&config_.spec, &table_, &pool_, shard) {
    STRATA_CHECK(config_.spec.embeds == (config_.stage == 0));
    STRATA_CHECK(config_.spec.heads == (config_.stage + 1 == config_.stage_count));
    MutexLock lock(&mutex_);
    CountPages();
  }

  absl::StatusOr<Output> Step(StepMessage frame);
  absl::Status Fence(uint64_t epoch);
  void DropAllSequences();
  absl::StatusOr<KvGiver::Parts> GiveKv(const v1::CarryKvRequest& request, bool begins);
  // Of what is asked for; and by KV group where that lies in pages.
  absl::StatusOr<v1::CarriedLayers> LayersToGive(const v1::CarryKvRequest& request,
                                                 std::vector<PagePart>* parts) const;
  v1::CarryKvRequest DescribeKv() const;
  KvTaker& taker() { return taker_; }
  SequenceTable& table() { return table_; }
  RunnerStats stats() const STRATA_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  absl::StatusOr<bool> IsNext(const v1::StepFrame& frame) const;
  void ReleaseUnnamed(const v1::StepFrame& frame);
  void RunCommands(v1::StepFrame* frame);
  // Checks every item, and takes ids and pages of those that pass.
  std::vector<ItemRun> AcceptItems(StepMessage* frame);
  void CountBackendFailure() {
    MutexLock lock(&mutex_);
    ++stats_.backend_failures;
  }
  // Remembers it where the device or a rank failed for good: then the step does, whoever met it.
  void NoteDevice(const absl::Status& status) {
    if (FailsTheStep(status)) {
      device_ = status;
    }
  }
  void Settle(v1::StepFrame* frame, std::span<ItemRun> runs);
  void FinishRun(uint64_t step, ItemRun* run);
  v1::ErrorDetail Detail(const absl::Status& status, const std::string& request_id) const;
  void AddStageKv(v1::StepFrame* frame, TimePoint begin) const;
  void UpdateStats(const v1::StepFrame& frame, size_t computed);
  void CountPages() STRATA_REQUIRES(mutex_);

  const ShardRunnerConfig config_;
  const Clock* const clock_;
  uint64_t epoch_;
  uint64_t last_step_ = 0;
  bool fenced_ = false;  // The next frame must resynchronize.
  KvPool pool_;
  const StageLayers stage_;
  SequenceTable table_;
  TokenMasks masks_;  // Of a last stage.
  ItemAcceptor acceptor_;
  ResultBuilder result_;
  StepComputer computer_;
  Shard* const shard_;
  std::map<std::pair<uint32_t, uint32_t>, KvGiver> givers_;  // By the layers that are given.
  KvTaker taker_;
  // Of the frame at hand.
  std::vector<float> activations_;
  absl::Status device_;

  mutable Mutex mutex_;
  RunnerStats stats_ STRATA_GUARDED_BY(mutex_);
};

absl::StatusOr<bool> ShardRunner::Impl::IsNext(const v1::StepFrame& frame) const {
  if (frame.deployment() != config_.deployment) {
    return Error(absl::StatusCode::kInvalidArgument, "WRONG_DEPLOYMENT",
                 "a frame of deployment " + std::to_string(frame.deployment()) +
                     " came to one of " + std::to_string(config_.deployment))
        .Node(config_.node);
  }
  if (step_policy::EpochIsOld(frame.epoch(), epoch_)) {
    return false;
  }
  if (step_policy::EpochIsNotLoaded(frame.epoch(), epoch_)) {
    return Error(absl::StatusCode::kFailedPrecondition, "EPOCH_NOT_LOADED",
                 "a frame of epoch " + std::to_string(frame.epoch()) + " came while epoch " +
                     std::to_string(epoch_) + " is loaded")
        .Node(config_.node)
        .Fact("epoch", frame.epoch())
        .Fact("loaded", epoch_);
  }
  if (step_policy::StepWasSeen(frame.step(), last_step_)) {
    return false;
  }
  if (!step_policy::StepFollows(frame.step(), last_step_)) {
    return Error(absl::StatusCode::kFailedPrecondition, "STEP_GAP",
                 "step " + std::to_string(frame.step()) + " came after step " +
                     std::to_string(last_step_))
        .Node(config_.node)
        .Fact("step", frame.step())
        .Fact("last_step", last_step_);
  }
  if (frame.resync() ? frame.step() != 1 : fenced_) {
    return Error(absl::StatusCode::kInvalidArgument, "RESYNC_MISPLACED",
                 "the first frame after a fence, and no other, must resynchronize")
        .Node(config_.node)
        .Fact("step", frame.step());
  }
  return true;
}

absl::StatusOr<ShardRunner::Output> ShardRunner::Impl::Step(StepMessage frame) {
  const TimePoint begin = clock_->Now();
  ASSIGN_OR_RETURN(const bool next, IsNext(frame.header));
  if (!next) {
    MutexLock lock(&mutex_);
    ++stats_.frames_discarded;
    return Output(Discarded{});
  }
  if (absl::Status status = CheckFrame(frame, config_.spec, config_.stage); !status.ok()) {
    return StatusOf(Detail(status, ""));
  }
  // From here on nothing fails but items and commands, each by itself, or the device.
  last_step_ = frame.header.step();
  fenced_ = false;
  if (frame.header.resync()) {
    taker_.End();
    ReleaseUnnamed(frame.header);
  } else {
    table_.Commit(frame.header.committed_step());
  }
  if (config_.spec.heads) {
    masks_.Keep(frame.header);
  }
  device_ = absl::OkStatus();
  RunCommands(&frame.header);
  std::vector<ItemRun> runs = AcceptItems(&frame);
  NoteDevice(computer_.Compute(&frame, runs));
  Settle(&frame.header, runs);
  if (!device_.ok()) {
    CountBackendFailure();
    return StatusOf(Detail(device_, ""));
  }
  const auto computed =
      std::count_if(runs.begin(), runs.end(), [](const ItemRun& run) { return run.status.ok(); });
  UpdateStats(frame.header, static_cast<size_t>(computed));
  AddStageKv(&frame.header, begin);
  if (config_.spec.heads) {
    return Output(result_.Finish(frame.header));
  }
  DropEmbeddingValues(&frame.header);
  return Output(std::move(frame));
}

void ShardRunner::Impl::ReleaseUnnamed(const v1::StepFrame& frame) {
  std::set<std::pair<std::string, uint64_t>> named;
  for (const v1::StepCommand& command : frame.commands()) {
    const v1::SequenceName& name = command.truncate().sequence();
    named.emplace(name.request_id(), name.generation());
  }
  table_.ReleaseIf([&named](const Sequence& sequence) {
    return !step_policy::SurvivesResync(named.contains({sequence.request_id, sequence.number}));
  });
  table_.ForgetSteps();
}

void ShardRunner::Impl::RunCommands(v1::StepFrame* frame) {
  for (v1::StepCommand& command : *frame->mutable_commands()) {
    // What a stage before refused is left alone, but a Release must leave nothing anywhere.
    if (command.has_error() && !command.has_release()) {
      continue;
    }
    const absl::Status status =
        RunCommand(command, config_.spec.model, frame->step(), frame->resync(), &table_);
    NoteDevice(status);
    if (!status.ok() && !command.has_error()) {
      *command.mutable_error() = Detail(status, "");
      command.set_error_stage(config_.stage);
    }
  }
}

std::vector<ItemRun> ShardRunner::Impl::AcceptItems(StepMessage* frame) {
  // Kept for a second try: what is sent on is written to the payload.
  activations_.swap(frame->payload);
  std::vector<ItemRun> runs;
  acceptor_.Begin(frame->header);
  const size_t hidden = config_.spec.model.hidden;
  uint32_t input_row = 0;
  uint32_t payload_row = 0;
  for (int i = 0; i < frame->header.items_size(); ++i) {
    v1::StepItem* item = frame->header.mutable_items(i);
    ItemRun run;
    run.index = i;
    run.slice = SliceOf(*item);
    run.rows = static_cast<uint32_t>(item->token_ids_size());
    run.drafts = item->draft_tokens();
    run.payload_row = payload_row;
    if (!config_.spec.embeds && run.slice.PassesInto(stage_.first)) {
      run.input =
          std::span<const float>(activations_).subspan(input_row * hidden, run.rows * hidden);
      input_row += run.rows;
    }
    payload_row += run.slice.PassesInto(stage_.last + 1) ? run.rows : 0;
    if (item->has_error()) {
      continue;
    }
    if (absl::Status status = acceptor_.Accept(*item, &run); !status.ok()) {
      NoteDevice(status);
      *item->mutable_error() = Detail(status, item->sequence().request_id());
      item->set_error_stage(config_.stage);
    } else {
      runs.push_back(std::move(run));
    }
  }
  frame->payload.assign(config_.spec.heads ? 0 : payload_row * hidden, 0.0f);
  return runs;
}

void ShardRunner::Impl::Settle(v1::StepFrame* frame, std::span<ItemRun> runs) {
  // What failed first: parts behind it go with it.
  for (ItemRun& run : runs) {
    if (!run.status.ok()) {
      // As before the item, so that nothing that is not finite stays; a sequence that the item
      // created stays without tokens until it is released, as on the stages before.
      table_.Truncate(run.sequence, std::min(run.old_length, run.sequence->length()));
    }
  }
  for (ItemRun& run : runs) {
    if (run.status.ok() && run.sequence->length() < run.old_length + run.rows) {
      run.status = Error(absl::StatusCode::kFailedPrecondition, "SLICE_MISMATCH",
                         "the tokens before this part of the sequence failed in the same step")
                       .Hint("resend from 0");
      if (config_.spec.heads) {
        result_.Drop(run.index);
      }
    }
    v1::StepItem* item = frame->mutable_items(run.index);
    if (run.status.ok()) {
      FinishRun(frame->step(), &run);
      for (v1::LayerDigest& digest : run.digests) {
        *item->add_layer_digests() = std::move(digest);
      }
    } else {
      *item->mutable_error() = Detail(run.status, item->sequence().request_id());
      item->set_error_stage(config_.stage);
    }
  }
}

void ShardRunner::Impl::FinishRun(uint64_t step, ItemRun* run) {
  Sequence* sequence = run->sequence;
  if (run->slice.end == ItemSlice::kToTheEnd) {
    // What was drafted may be cut off: windows stay for the rows before it until a later step.
    table_.NoteStep(sequence, step, run->old_length + run->rows - run->drafts);
    std::erase_if(sequence->unfinished,
                  [run](const UnfinishedItem& item) { return item.position == run->old_length; });
  } else {
    sequence->UnfinishedAt(run->old_length)->parked = std::move(run->parked);
  }
}

v1::ErrorDetail ShardRunner::Impl::Detail(const absl::Status& status,
                                          const std::string& request_id) const {
  v1::ErrorDetail detail = DetailOf(status);
  if (detail.reason() != kRanksBroken || detail.node().empty()) {  // It names the lost rank's.
    detail.set_node(config_.node);
  }
  detail.set_request_id(request_id);
  return detail;
}

void ShardRunner::Impl::AddStageKv(v1::StepFrame* frame, TimePoint begin) const {
  v1::StageKv* kv = frame->add_stages();
  kv->set_stage(config_.stage);
  for (uint32_t group = 0; group < pool_.groups(); ++group) {
    kv->add_free_pages(pool_.free(group));
    kv->add_total_pages(pool_.total(group));
  }
  kv->set_compute_ms(ToMs(clock_->Now() - begin));
}

void ShardRunner::Impl::UpdateStats(const v1::StepFrame& frame, size_t computed) {
  MutexLock lock(&mutex_);
  ++stats_.frames_computed;
  stats_.items_computed += computed;
  for (const v1::StepItem& item : frame.items()) {
    stats_.items_rejected += item.has_error() && item.error_stage() == config_.stage ? 1 : 0;
  }
  stats_.sequences = table_.size();
  CountPages();
}

void ShardRunner::Impl::CountPages() {
  stats_.free_pages.resize(pool_.groups());
  stats_.total_pages.resize(pool_.groups());
  for (uint32_t group = 0; group < pool_.groups(); ++group) {
    stats_.free_pages[group] = pool_.free(group);
    stats_.total_pages[group] = pool_.total(group);
  }
}

absl::Status ShardRunner::Impl::Fence(uint64_t epoch) {
  if (step_policy::EpochIsOld(epoch, epoch_)) {
    return Error(absl::StatusCode::kFailedPrecondition, "EPOCH_OLD",
                 "a fence for epoch " + std::to_string(epoch) + " came while epoch " +
                     std::to_string(epoch_) + " is loaded")
        .Node(config_.node)
        .Fact("epoch", epoch)
        .Fact("loaded", epoch_);
  }
  if (epoch != epoch_) {
    epoch_ = epoch;
    last_step_ = 0;
    fenced_ = true;
    masks_.Clear();
  }
  return absl::OkStatus();
}

v1::CarryKvRequest ShardRunner::Impl::DescribeKv() const {
  v1::CarryKvRequest request;
  request.set_first_layer(config_.spec.first_layer);
  request.set_last_layer(config_.spec.last_layer);
  request.set_numerics_class(config_.numerics_class);
  return request;
}

absl::StatusOr<v1::CarriedLayers> ShardRunner::Impl::LayersToGive(
    const v1::CarryKvRequest& request, std::vector<PagePart>* parts) const {
  const absl::Status unlike = Error(absl::StatusCode::kFailedPrecondition, "KV_UNLIKE",
                                    "KV of this stage is not what the other one could use")
                                  .Node(config_.node)
                                  .Hint("requests are computed again from their tokens");
  const std::optional<LayerRange> common =
      CommonLayers({config_.spec.first_layer, config_.spec.last_layer},
                   {request.first_layer(), request.last_layer()});
  if (!common.has_value() || request.numerics_class() != config_.numerics_class) {
    return unlike;
  }
  v1::CarriedLayers layers;
  layers.set_first_layer(common->first);
  layers.set_last_layer(common->last);
  bool any = false;
  for (uint32_t group = 0; group < pool_.groups(); ++group) {
    const std::optional<PagePart> part = PagePartOf(config_.spec, *shard_, group, *common);
    if (!part.has_value()) {
      return unlike;
    }
    any = any || part->bytes > 0;
    layers.add_page_bytes(part->bytes);
    parts->push_back(*part);
  }
  return any ? absl::StatusOr<v1::CarriedLayers>(std::move(layers)) : unlike;
}

absl::StatusOr<KvGiver::Parts> ShardRunner::Impl::GiveKv(const v1::CarryKvRequest& request,
                                                         bool begins) {
  std::vector<PagePart> page_parts;
  ASSIGN_OR_RETURN(v1::CarriedLayers layers, LayersToGive(request, &page_parts));
  const std::pair range(layers.first_layer(), layers.last_layer());
  if (givers_.size() >= kMostTakers && !givers_.contains(range)) {
    givers_.clear();  // They are given anew what they have.
  }
  KvGiver& giver = givers_
                       .try_emplace(range, LayerRange{range.first, range.second},
                                    std::move(page_parts), &table_, shard_)
                       .first->second;
  if (!begins) {
    return request.final() ? KvGiver::Parts() : giver.More();
  }
  if (!request.final()) {
    giver.Begin(request.round());
  }
  ASSIGN_OR_RETURN(KvGiver::Parts parts,
                   request.final() ? giver.Rest(request.pages_only()) : giver.More());
  v1::CarryKvPart head;
  *head.mutable_layers() = std::move(layers);
  parts.insert(parts.begin(), std::move(head));
  return parts;
}

void ShardRunner::Impl::DropAllSequences() {
  table_.ReleaseIf([](const Sequence&) { return true; });
  MutexLock lock(&mutex_);
  stats_.sequences = 0;
  CountPages();
}

ShardRunner::ShardRunner(ShardRunnerConfig config, Shard* shard, const Clock* clock)
    : impl_(std::make_unique<Impl>(std::move(config), shard, clock)) {}
ShardRunner::~ShardRunner() = default;
absl::StatusOr<ShardRunner::Output> ShardRunner::Step(StepMessage frame) {
  return impl_->Step(std::move(frame));
}
absl::Status ShardRunner::Fence(uint64_t epoch) { return impl_->Fence(epoch); }
void ShardRunner::DropAllSequences() { impl_->DropAllSequences(); }
absl::StatusOr<std::vector<v1::CarryKvPart>> ShardRunner::GiveKv(const v1::CarryKvRequest& request,
                                                                 bool begins) {
  return impl_->GiveKv(request, begins);
}
v1::CarryKvRequest ShardRunner::DescribeKv() const { return impl_->DescribeKv(); }
absl::Status ShardRunner::TakeKv(uint32_t source, const v1::CarryKvPart& part) {
  return impl_->taker().Take(source, part);
}
TakenKv ShardRunner::taken_kv() const { return impl_->taker().taken(); }
void ShardRunner::ForgetTakenKv() { impl_->taker().End(); }
RunnerStats ShardRunner::stats() const { return impl_->stats(); }
SequenceTable& ShardRunner::sequences_for_test() { return impl_->table(); }

}  // namespace strata
