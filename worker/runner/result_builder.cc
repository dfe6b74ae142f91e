#include "worker/runner/result_builder.h"

#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "worker/runner/step_checks.h"

namespace strata {
namespace {

bool IsLast(const v1::StepItem& item, uint32_t row) {
  return static_cast<int>(row) + 1 == item.token_ids_size();
}

}  // namespace

void ResultBuilder::Begin(int items) {
  items_.clear();
  items_.resize(static_cast<size_t>(items));
}

absl::Status ResultBuilder::AddRow(int index, const v1::StepItem& item, const Sequence& sequence,
                                   uint32_t row, std::span<const float> logits) {
  Item* added = &items_[static_cast<size_t>(index)];
  if (row >= item.rows_from() && WantsLogits(item)) {
    added->payload.insert(added->payload.end(), logits.begin(), logits.end());
    added->result.set_payload_rows(added->result.payload_rows() + 1);
  }
  if (WantsRowLogprob(item, row)) {
    RETURN_IF_ERROR(AddLogprob(item, sequence, row, logits, &added->result));
  }
  if (!Samples(item, row) || IsBehindWrongDraft(*added, item, row)) {
    return absl::OkStatus();
  }
  return AddSample(item, sequence, row, logits, added);
}

std::optional<v1::TokenLogprob>* ResultBuilder::SampleAt(Item* added, const v1::StepItem& item,
                                                         uint32_t row) {
  added->sampled.resize(size_t{item.draft_tokens()} + 1);
  const auto first = static_cast<uint32_t>(item.token_ids_size()) - item.draft_tokens() - 1;
  return &added->sampled[row - first];
}

bool ResultBuilder::IsBehindWrongDraft(const Item& added, const v1::StepItem& item, uint32_t row) {
  const auto first = static_cast<uint32_t>(item.token_ids_size()) - item.draft_tokens() - 1;
  for (uint32_t i = 0; i < added.sampled.size() && first + i < row; ++i) {
    if (added.sampled[i].has_value() &&
        added.sampled[i]->token_id() != item.token_ids(static_cast<int>(first + i) + 1)) {
      return true;
    }
  }
  return false;
}

bool ResultBuilder::WantsRowLogprob(const v1::StepItem& item, uint32_t row) {
  return row >= item.rows_from() && WantsLogprobs(item) &&
         (!IsLast(item, row) || item.has_following_id());
}

bool ResultBuilder::WantsOnlyLargest(const v1::StepItem& item, const Sequence& sequence,
                                     uint32_t row) const {
  return Samples(item, row) && !item.digest_layers() && !WantsLogits(item) &&
         !WantsRowLogprob(item, row) && !sequence.params.logprobs() &&
         sampler_.TakesLargest(RequestAfter(item, sequence, row));
}

void ResultBuilder::AddLargest(int index, const v1::StepItem& item, uint32_t row,
                               uint32_t token_id) {
  SampleAt(&items_[static_cast<size_t>(index)], item, row)->emplace().set_token_id(token_id);
}

// After the row's token: of later ones some layers may be computed already, and drafts are wrong.
SampleRequest ResultBuilder::RequestAfter(const v1::StepItem& item, const Sequence& sequence,
                                          uint32_t row) const {
  const size_t length = size_t{item.position()} + row + 1;
  SampleRequest request = SampleRequestOf(sequence.params, std::span(sequence.ids).first(length));
  if (item.has_mask()) {
    const uint32_t first = static_cast<uint32_t>(item.token_ids_size()) - item.draft_tokens() - 1;
    request.mask = masks_.Find(row == first ? item.mask()
                                            : item.draft_masks(static_cast<int>(row - first) - 1));
    STRATA_CHECK(!request.mask.empty());  // The item was accepted.
  }
  return request;
}

absl::Status ResultBuilder::AddLogprob(const v1::StepItem& item, const Sequence& sequence,
                                       uint32_t row, std::span<const float> logits,
                                       v1::ItemResult* result) {
  const auto next = static_cast<int>(row) + 1;
  const uint32_t id = next < item.token_ids_size() ? item.token_ids(next) : item.following_id();
  ASSIGN_OR_RETURN(v1::TokenLogprob logprob,
                   sampler_.Logprob(logits, id, sequence.params.prompt_top_logprobs()));
  *result->add_row_logprobs() = std::move(logprob);
  return absl::OkStatus();
}

absl::Status ResultBuilder::AddSample(const v1::StepItem& item, const Sequence& sequence,
                                      uint32_t row, std::span<const float> logits, Item* added) {
  const v1::SequenceParams& params = sequence.params;
  ASSIGN_OR_RETURN(const uint32_t id, sampler_.Sample(RequestAfter(item, sequence, row), logits));
  v1::TokenLogprob sampled;
  sampled.set_token_id(id);
  if (params.logprobs()) {
    ASSIGN_OR_RETURN(sampled, sampler_.Logprob(logits, id, params.top_logprobs()));
  }
  *SampleAt(added, item, row) = std::move(sampled);
  return absl::OkStatus();
}

void ResultBuilder::Drop(int index) { items_[static_cast<size_t>(index)] = Item(); }

ResultMessage ResultBuilder::Finish(const v1::StepFrame& frame) {
  ResultMessage result;
  v1::StepResult* header = &result.header;
  header->set_deployment(frame.deployment());
  header->set_epoch(frame.epoch());
  header->set_step(frame.step());
  for (int i = 0; i < frame.items_size(); ++i) {
    const v1::StepItem& item = frame.items(i);
    v1::ItemResult* added = header->add_items();
    Item& made = items_[static_cast<size_t>(i)];
    *added = std::move(made.result);
    const auto sampled = static_cast<int>(made.sampled.size());
    for (int s = 0; s < sampled && made.sampled[s].has_value(); ++s) {
      const bool goes_on =
          s + 1 < sampled &&
          made.sampled[s]->token_id() == item.token_ids(item.token_ids_size() - sampled + s + 1);
      *added->add_tokens() = *std::move(made.sampled[s]);
      if (!goes_on) {
        break;
      }
    }
    *added->mutable_sequence() = item.sequence();
    if (item.has_error()) {
      *added->mutable_error() = item.error();
      added->set_error_stage(item.error_stage());
    } else {
      *added->mutable_layer_digests() = item.layer_digests();
    }
  }
  for (const v1::StepCommand& command : frame.commands()) {
    v1::CommandResult* added = header->add_commands();
    if (command.has_error()) {
      *added->mutable_error() = command.error();
      added->set_error_stage(command.error_stage());
    }
  }
  *header->mutable_stages() = frame.stages();
  for (Item& item : items_) {
    if (result.payload.empty()) {
      result.payload = std::move(item.payload);  // Most often there is one.
    } else {
      result.payload.insert(result.payload.end(), item.payload.begin(), item.payload.end());
    }
  }
  return result;
}

}  // namespace strata
