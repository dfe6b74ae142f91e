#include "worker/runner/item_acceptor.h"

#include "common/frame.h"
#include "common/status.h"
#include "worker/runner/sequence_checks.h"
#include "worker/runner/step_checks.h"
#include "worker/runner/step_policy.h"

namespace strata {
namespace {

std::map<uint32_t, uint64_t> EmbeddedOf(const v1::StepItem& item) {
  std::map<uint32_t, uint64_t> embedded;
  for (const v1::EmbeddingRow& row : item.embedding_rows()) {
    embedded[row.position()] = row.digest();
  }
  return embedded;
}

}  // namespace

void ItemAcceptor::Begin(const v1::StepFrame& frame) {
  named_.clear();
  logits_rows_ = 0;
  parked_rows_ = HasSlices(frame) ? table_.ParkedRows() : 0;  // It looks at all sequences.
}

absl::Status ItemAcceptor::CheckLogitsRows(const v1::StepItem& item) const {
  const uint64_t row_bytes = uint64_t{spec_.model.vocab} * sizeof(float);
  const uint64_t limit = (kMaxFrameBytes - kMaxFrameHeaderBytes) / row_bytes;
  if (logits_rows_ + LogitsRows(item) > limit) {
    return Error(absl::StatusCode::kResourceExhausted, "LOGITS_ROWS",
                 "a step's result holds no more than " + std::to_string(limit) + " rows of logits")
        .Limit("logits_rows=" + std::to_string(limit));
  }
  return absl::OkStatus();
}

// Parts of one sequence may be under way in slices, one slice of each in a step; whatever else
// names it is alone.
absl::Status ItemAcceptor::CheckNamedOnce(const v1::StepItem& item, const ItemSlice& slice) const {
  const auto named = named_.find({item.sequence().request_id(), item.sequence().generation()});
  if (named != named_.end() &&
      (slice.whole() || named->second.empty() || named->second.contains(item.position()))) {
    return Error(absl::StatusCode::kInvalidArgument, "SEQUENCE_TWICE",
                 "a step has two items of one sequence");
  }
  return absl::OkStatus();
}

absl::Status ItemAcceptor::CheckParkedRows(const ItemRun& run) const {
  const uint64_t limit = spec_.max_batch_tokens;
  if (stage_.Keeps(run.slice) && !stage_.Kept(run.slice) && parked_rows_ + run.rows > limit) {
    return Error(absl::StatusCode::kResourceExhausted, "PARKED_ROWS",
                 "a stage keeps no more than " + std::to_string(limit) +
                     " rows between the steps that compute them")
        .Limit("max_batch_tokens=" + std::to_string(limit));
  }
  return absl::OkStatus();
}

absl::Status ItemAcceptor::Accept(const v1::StepItem& item, ItemRun* run) {
  RETURN_IF_ERROR(CheckItem(item, run->input, spec_));
  if (run->slice.end == ItemSlice::kToTheEnd) {
    RETURN_IF_ERROR(CheckLogitsRows(item));
    RETURN_IF_ERROR(spec_.heads ? masks_.Check(item) : absl::OkStatus());
  }
  RETURN_IF_ERROR(CheckNamedOnce(item, run->slice));
  RETURN_IF_ERROR(CheckParkedRows(*run));
  const v1::SequenceName& name = item.sequence();
  run->sequence = table_.Find(name.request_id(), name.generation());
  run->old_length = item.position();
  RETURN_IF_ERROR(run->slice.from == 0 ? BeginItem(item, run) : ContinueItem(item, *run));
  auto& positions = named_[{name.request_id(), name.generation()}];
  if (!run->slice.whole()) {
    positions.insert(item.position());
  }
  logits_rows_ += run->slice.end == ItemSlice::kToTheEnd ? LogitsRows(item) : 0;
  parked_rows_ += stage_.Keeps(run->slice) ? run->rows : 0;
  parked_rows_ -= stage_.Kept(run->slice) ? run->rows : 0;
  return absl::OkStatus();
}

absl::Status ItemAcceptor::BeginItem(const v1::StepItem& item, ItemRun* run) {
  const v1::SequenceName& name = item.sequence();
  Sequence*& sequence = run->sequence;
  if (sequence != nullptr) {
    RETURN_IF_ERROR(CheckState(*sequence, table_,
                               step_policy::PositionMatches(item.position(), sequence->length()),
                               item.position(), item.fingerprint()));
    RETURN_IF_ERROR(CheckSliceBegins(*sequence, run->slice));
  } else {
    if (!step_policy::PositionBegins(item.position())) {
      return SequenceNotFound(name);
    }
    RETURN_IF_ERROR(CheckNumberIsNew(name, table_));
    RETURN_IF_ERROR(
        CheckFingerprint(name, 0, item.fingerprint(), table_.root(item.params().rotary_variant())));
    RETURN_IF_ERROR(CheckParams(item.params(), spec_.model));
  }
  RETURN_IF_ERROR(table_.CheckPages(sequence, run->rows));
  if (sequence == nullptr) {
    sequence = table_.Create(name.request_id(), name.generation(), item.params());
  }
  RETURN_IF_ERROR(
      table_.Append(sequence, {item.token_ids().data(), static_cast<size_t>(item.token_ids_size())},
                    EmbeddedOf(item)));
  if (!run->slice.whole()) {
    sequence->unfinished.push_back({run->old_length, run->rows, run->slice.end, {}});
  }
  return absl::OkStatus();
}

absl::Status ItemAcceptor::ContinueItem(const v1::StepItem& item, const ItemRun& run) {
  if (run.sequence == nullptr) {
    return SequenceNotFound(item.sequence());
  }
  RETURN_IF_ERROR(CheckSliceFollows(*run.sequence, table_, item));
  run.sequence->UnfinishedAt(item.position())->next_layer = run.slice.end;
  return absl::OkStatus();
}

}  // namespace strata
