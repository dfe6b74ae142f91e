#include "worker/runner/result_builder.h"

#include <utility>

#include "common/status.h"
#include "worker/runner/step_checks.h"

namespace strata {

void ResultBuilder::Begin(int items) {
  items_.assign(static_cast<size_t>(items), {});
  payload_.clear();
}

absl::Status ResultBuilder::AddRow(int index, const v1::StepItem& item, const Sequence& sequence,
                                   uint32_t row, std::span<const float> logits) {
  v1::ItemResult* result = &items_[static_cast<size_t>(index)];
  const bool last = static_cast<int>(row) + 1 == item.token_ids_size();
  const bool wanted = row >= item.rows_from();
  if (wanted && WantsLogits(item)) {
    payload_.insert(payload_.end(), logits.begin(), logits.end());
    result->set_payload_rows(result->payload_rows() + 1);
  }
  if (wanted && WantsLogprobs(item) && (!last || item.has_following_id())) {
    RETURN_IF_ERROR(AddLogprob(item, sequence, row, logits, result));
  }
  return last && item.sample() ? AddSample(sequence, logits, result) : absl::OkStatus();
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

absl::Status ResultBuilder::AddSample(const Sequence& sequence, std::span<const float> logits,
                                      v1::ItemResult* result) {
  const v1::SequenceParams& params = sequence.params;
  ASSIGN_OR_RETURN(const uint32_t id,
                   sampler_.Sample(SampleRequestOf(params, sequence.ids), logits));
  if (params.logprobs()) {
    ASSIGN_OR_RETURN(v1::TokenLogprob logprob, sampler_.Logprob(logits, id, params.top_logprobs()));
    *result->add_tokens() = std::move(logprob);
  } else {
    result->add_tokens()->set_token_id(id);
  }
  return absl::OkStatus();
}

void ResultBuilder::Drop(int index) {
  v1::ItemResult* result = &items_[static_cast<size_t>(index)];
  payload_.resize(payload_.size() - size_t{result->payload_rows()} * vocab_);
  result->Clear();
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
  result.payload = std::move(payload_);
  return result;
}

}  // namespace strata
