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
  items_.assign(static_cast<size_t>(items), {});
  payloads_.assign(static_cast<size_t>(items), {});
}

absl::Status ResultBuilder::AddRow(int index, const v1::StepItem& item, const Sequence& sequence,
                                   uint32_t row, std::span<const float> logits) {
  v1::ItemResult* result = &items_[static_cast<size_t>(index)];
  if (row >= item.rows_from() && WantsLogits(item)) {
    std::vector<float>& payload = payloads_[static_cast<size_t>(index)];
    payload.insert(payload.end(), logits.begin(), logits.end());
    result->set_payload_rows(result->payload_rows() + 1);
  }
  if (WantsRowLogprob(item, row)) {
    RETURN_IF_ERROR(AddLogprob(item, sequence, row, logits, result));
  }
  return IsLast(item, row) && item.sample() ? AddSample(item, sequence, logits, result)
                                            : absl::OkStatus();
}

bool ResultBuilder::WantsRowLogprob(const v1::StepItem& item, uint32_t row) {
  return row >= item.rows_from() && WantsLogprobs(item) &&
         (!IsLast(item, row) || item.has_following_id());
}

bool ResultBuilder::WantsOnlyLargest(const v1::StepItem& item, const Sequence& sequence,
                                     uint32_t row) const {
  return IsLast(item, row) && item.sample() && !item.digest_layers() && !WantsLogits(item) &&
         !WantsRowLogprob(item, row) && !sequence.params.logprobs() &&
         sampler_.TakesLargest(RequestAfter(item, sequence));
}

void ResultBuilder::AddLargest(int index, uint32_t token_id) {
  items_[static_cast<size_t>(index)].add_tokens()->set_token_id(token_id);
}

// After the item's tokens: of later ones some layers may be computed already.
SampleRequest ResultBuilder::RequestAfter(const v1::StepItem& item,
                                          const Sequence& sequence) const {
  const size_t length = item.position() + static_cast<size_t>(item.token_ids_size());
  SampleRequest request = SampleRequestOf(sequence.params, std::span(sequence.ids).first(length));
  if (item.has_mask()) {
    request.mask = masks_.Find(item.mask());
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
                                      std::span<const float> logits, v1::ItemResult* result) {
  const v1::SequenceParams& params = sequence.params;
  ASSIGN_OR_RETURN(const uint32_t id, sampler_.Sample(RequestAfter(item, sequence), logits));
  if (params.logprobs()) {
    ASSIGN_OR_RETURN(v1::TokenLogprob logprob, sampler_.Logprob(logits, id, params.top_logprobs()));
    *result->add_tokens() = std::move(logprob);
  } else {
    result->add_tokens()->set_token_id(id);
  }
  return absl::OkStatus();
}

void ResultBuilder::Drop(int index) {
  items_[static_cast<size_t>(index)].Clear();
  payloads_[static_cast<size_t>(index)].clear();
}

ResultMessage ResultBuilder::Finish(const v1::StepFrame& frame) {
  ResultMessage result;
  v1::StepResult* header = &result.header;
  header->set_deployment(frame.deployment());
  header->set_epoch(frame.epoch());
  header->set_step(frame.step());
  for (int i = 0; i < frame.items_size(); ++i) {
    const v1::StepItem& item = frame.items(i);
    v1::ItemResult* added = header->add_items();
    *added = std::move(items_[static_cast<size_t>(i)]);
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
  for (std::vector<float>& payload : payloads_) {
    if (result.payload.empty()) {
      result.payload = std::move(payload);  // Most often there is one.
    } else {
      result.payload.insert(result.payload.end(), payload.begin(), payload.end());
    }
  }
  return result;
}

}  // namespace strata
