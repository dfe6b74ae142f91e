#include "worker/runner/step_checks.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "common/fingerprint.h"
#include "common/limits.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "worker/runner/item_slice.h"

namespace strata {
namespace {

Error BadFrame(std::string_view reason, const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason, message);
}

Error NotImplemented(std::string_view reason, const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, reason, what + " not supported yet");
}

absl::Status CheckCount(std::string_view what, uint64_t count, uint64_t limit) {
  if (count > limit) {
    const std::string name(what);
    return BadFrame("FRAME_LIMIT", "a frame of " + std::to_string(count) + " " + name +
                                       " exceeds the limit of " + std::to_string(limit))
        .Limit("max_batch_" + name + "=" + std::to_string(limit));
  }
  return absl::OkStatus();
}

// Fields that a newer peer knows must not be ignored: they may change what is meant.
absl::Status CheckUnknownFields(const google::protobuf::Message& message) {
  const auto& fields = message.GetReflection()->GetUnknownFields(message);
  if (!fields.empty()) {
    return NotImplemented("UNKNOWN_FIELD", "field " + std::to_string(fields.field(0).number()) +
                                               " of " + message.GetDescriptor()->name() + " is");
  }
  return absl::OkStatus();
}

absl::Status CheckImplemented(const v1::StepItem& item) {
  RETURN_IF_ERROR(CheckUnknownFields(item));
  if (!item.last_stage_payload().empty()) {
    return NotImplemented("LAST_STAGE_PAYLOAD_UNSUPPORTED", "payloads for the last stage are");
  }
  switch (item.rows_wanted()) {
    case v1::ROWS_WANTED_UNSPECIFIED:
    case v1::ROWS_WANTED_NONE:
    case v1::ROWS_WANTED_LOGITS:
    case v1::ROWS_WANTED_LOGPROBS:
    case v1::ROWS_WANTED_LOGITS_AND_LOGPROBS:
      return absl::OkStatus();
    case v1::ROWS_WANTED_HIDDEN:
      return NotImplemented("HIDDEN_ROWS_UNSUPPORTED", "final hidden states are");
    default:
      return NotImplemented("ROWS_WANTED_UNSUPPORTED",
                            "rows_wanted " + std::to_string(item.rows_wanted()) + " is");
  }
}

absl::Status CheckTokenId(std::string_view what, uint32_t id, uint32_t vocab) {
  if (id >= vocab) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKEN_OUT_OF_RANGE",
                 std::string(what) + " " + std::to_string(id) + " is not below the vocabulary's " +
                     std::to_string(vocab))
        .Limit("vocab=" + std::to_string(vocab));
  }
  return absl::OkStatus();
}

absl::Status BadEmbeddingRow(const v1::EmbeddingRow& row, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "EMBEDDING_ROWS",
               "the row of input embeddings at position " + std::to_string(row.position()) + " " +
                   what)
      .Fact("position", row.position());
}

// Of an item with tokens: what it may be beside drafted ones.
absl::Status CheckDrafts(const v1::StepItem& item) {
  const auto rows = static_cast<uint32_t>(item.token_ids_size());
  const auto masks = static_cast<uint32_t>(item.draft_masks_size());
  if (masks != (item.has_mask() ? item.draft_tokens() : 0)) {
    return Error(absl::StatusCode::kInvalidArgument, "DRAFT_MASKS",
                 std::to_string(masks) + " token masks of drafts, where an item has " +
                     std::to_string(item.draft_tokens()) + " drafts and " +
                     (item.has_mask() ? "a mask" : "no mask"));
  }
  const bool plain = item.sample() && !item.digest_layers() && !item.has_following_id() &&
                     !WantsLogits(item) && !WantsLogprobs(item) && SliceOf(item).whole();
  if (item.draft_tokens() == 0 || (plain && item.draft_tokens() < rows)) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "DRAFT_TOKENS",
               std::to_string(item.draft_tokens()) + " of an item's " + std::to_string(rows) +
                   " tokens are drafted: that takes a token before them, and an item that only "
                   "samples, on all layers");
}

// The rows of input embeddings of an item whose token ids were checked.
absl::Status CheckEmbeddingRows(const v1::StepItem& item, const StageSpec& spec) {
  if (item.embedding_rows().empty()) {
    return absl::OkStatus();
  }
  uint64_t from = item.position();
  const uint64_t end = from + static_cast<uint64_t>(item.token_ids_size());
  std::vector<float> values(spec.model.hidden);
  for (const v1::EmbeddingRow& row : item.embedding_rows()) {
    RETURN_IF_ERROR(CheckUnknownFields(row));
    if (row.position() < from || row.position() >= end) {
      return BadEmbeddingRow(row, "is not of the item, or out of order");
    }
    from = uint64_t{row.position()} + 1;
    if ((row.digest() & kEmbeddingLinkBit) == 0) {
      return BadEmbeddingRow(row, "has no digest");
    }
    if (!spec.embeds) {
      if (!row.values().empty()) {
        return BadEmbeddingRow(row, "came to a stage that does not embed");
      }
      continue;
    }
    const size_t wanted = values.size() * sizeof(float);
    if (row.values().size() != wanted) {
      return BadEmbeddingRow(row, "has " + std::to_string(row.values().size()) +
                                      " bytes where hidden_size takes " + std::to_string(wanted));
    }
    if (EmbeddingLink(row.values()) != row.digest()) {
      return BadEmbeddingRow(row, "has another digest than its values");
    }
    std::memcpy(values.data(), row.values().data(), wanted);
    if (!AllFinite(values)) {
      return BadEmbeddingRow(row, "is not finite");
    }
  }
  return absl::OkStatus();
}

// The digests of the layers before this stage's, of an item that asks for them.
absl::Status CheckLayerDigests(const v1::StepItem& item, const StageSpec& spec) {
  const uint32_t before = item.digest_layers() ? spec.first_layer : 0;
  bool fits = item.layer_digests_size() == static_cast<int>(before);
  for (uint32_t layer = 0; fits && layer < before; ++layer) {
    const v1::LayerDigest& digest = item.layer_digests(static_cast<int>(layer));
    fits = digest.layer() == layer && digest.rows_size() == item.token_ids_size();
  }
  return fits ? absl::OkStatus()
              : Error(absl::StatusCode::kInvalidArgument, "LAYER_DIGESTS",
                      "an item came without a digest of each row of each of the " +
                          std::to_string(before) + " layers before this stage, or with others");
}

}  // namespace

absl::Status CheckFrame(const StepMessage& frame, const StageSpec& spec, uint32_t stage) {
  const v1::StepFrame& header = frame.header;
  if (header.stages_size() != static_cast<int>(stage)) {
    return BadFrame("FRAME_STAGES", "a frame that " + std::to_string(header.stages_size()) +
                                        " stages have seen came to stage " + std::to_string(stage));
  }
  for (int i = 0; i < header.stages_size(); ++i) {
    if (header.stages(i).stage() != static_cast<uint32_t>(i)) {
      return BadFrame("FRAME_STAGES", "the stages that have seen a frame are out of order");
    }
  }
  if (header.committed_step() >= header.step()) {
    return BadFrame("FRAME_COMMITTED",
                    "step " + std::to_string(header.step()) + " says that step " +
                        std::to_string(header.committed_step()) + " is committed already");
  }
  RETURN_IF_ERROR(CheckCount("items", header.items_size(), spec.max_batch_items));
  RETURN_IF_ERROR(CheckCount("commands", header.commands_size(), kMaxStepCommands));
  RETURN_IF_ERROR(CheckCount("masks", header.masks_size(), kMaxMaskSlots));
  uint64_t rows = 0;
  for (const v1::StepItem& item : header.items()) {
    rows += static_cast<uint64_t>(item.token_ids_size());
  }
  RETURN_IF_ERROR(CheckCount("tokens", rows, spec.max_batch_tokens));
  if (header.rows() != rows) {
    return BadFrame("FRAME_ROWS", "a frame says " + std::to_string(header.rows()) +
                                      " rows, its items have " + std::to_string(rows));
  }
  const uint64_t values =
      stage == 0 ? 0 : PayloadRows(header, spec.first_layer) * spec.model.hidden;
  if (frame.payload.size() != values) {
    return BadFrame("FRAME_PAYLOAD", "a frame carries " + std::to_string(frame.payload.size()) +
                                         " activations where " + std::to_string(values) +
                                         " are expected");
  }
  return absl::OkStatus();
}

absl::Status CheckName(const v1::SequenceName& name) {
  const std::string& id = name.request_id();
  bool printable = true;
  for (const char c : id) {
    printable &= c >= ' ' && c <= '~';
  }
  if (id.empty() || id.size() > kMaxRequestIdBytes || !printable) {
    return Error(absl::StatusCode::kInvalidArgument, "SEQUENCE_NAME",
                 "a sequence's request id must have 1 to 128 printable ASCII characters");
  }
  if (name.generation() == 0) {
    return Error(absl::StatusCode::kInvalidArgument, "SEQUENCE_NAME",
                 "a sequence's generation must be above 0");
  }
  return absl::OkStatus();
}

absl::Status CheckParams(const v1::SequenceParams& params, const ModelSpec& model) {
  RETURN_IF_ERROR(CheckUnknownFields(params));
  RETURN_IF_ERROR(CheckUnknownFields(params.sampling()));
  if (params.adapter_slot() != 0) {
    return NotImplemented("ADAPTER_UNSUPPORTED",
                          "adapter slot " + std::to_string(params.adapter_slot()) + " is");
  }
  if (params.rotary_variant() != 0 && params.rotary_variant() >= RotaryVariants(model)) {
    return NotImplemented(
        "ROTARY_VARIANT_UNSUPPORTED",
        "rotary variant " + std::to_string(params.rotary_variant()) + " of this model is");
  }
  for (const uint32_t top : {params.top_logprobs(), params.prompt_top_logprobs()}) {
    if (top > kMaxTopLogprobs) {
      return Error(absl::StatusCode::kInvalidArgument, "TOP_LOGPROBS",
                   std::to_string(top) + " top logprobs are more than are given")
          .Limit("top_logprobs=" + std::to_string(kMaxTopLogprobs));
    }
  }
  if (static_cast<size_t>(params.stop_ids_size()) > kMaxStopIds) {
    return Error(absl::StatusCode::kInvalidArgument, "STOP_IDS",
                 std::to_string(params.stop_ids_size()) + " stop ids are too many")
        .Limit("stop_ids=" + std::to_string(kMaxStopIds));
  }
  for (const uint32_t id : params.stop_ids()) {
    if (id >= model.vocab) {
      return Error(absl::StatusCode::kInvalidArgument, "STOP_IDS",
                   "stop id " + std::to_string(id) + " is not below the vocabulary's " +
                       std::to_string(model.vocab));
    }
  }
  RETURN_IF_ERROR(CheckSamplingComplete(params.sampling()));
  return ValidateSampling(params.sampling(), model.vocab);
}

absl::Status CheckItem(const v1::StepItem& item, std::span<const float> activations,
                       const StageSpec& spec) {
  RETURN_IF_ERROR(CheckName(item.sequence()));
  RETURN_IF_ERROR(CheckImplemented(item));
  const auto rows = static_cast<uint32_t>(item.token_ids_size());
  if (rows == 0) {
    return Error(absl::StatusCode::kInvalidArgument, "NO_TOKENS", "an item has no token ids");
  }
  for (const uint32_t id : item.token_ids()) {
    RETURN_IF_ERROR(CheckTokenId("token id", id, spec.model.vocab));
  }
  RETURN_IF_ERROR(CheckSlice(item, spec.model));
  RETURN_IF_ERROR(CheckDrafts(item));
  RETURN_IF_ERROR(CheckEmbeddingRows(item, spec));
  RETURN_IF_ERROR(CheckLayerDigests(item, spec));
  if (item.has_following_id()) {
    RETURN_IF_ERROR(CheckTokenId("following id", item.following_id(), spec.model.vocab));
  }
  if (item.rows_from() >= rows) {
    return Error(absl::StatusCode::kInvalidArgument, "ROWS_FROM",
                 "rows are wanted from row " + std::to_string(item.rows_from()) +
                     " of an item of " + std::to_string(rows));
  }
  if (uint64_t{item.position()} + rows > spec.context) {
    return Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED",
                 "an item ends at token " + std::to_string(uint64_t{item.position()} + rows) +
                     " of a context of " + std::to_string(spec.context))
        .Limit("context=" + std::to_string(spec.context));
  }
  if (!AllFinite(activations)) {
    return Error(absl::StatusCode::kInternal, "NON_FINITE",
                 "activations from the stage before are not finite");
  }
  return absl::OkStatus();
}

bool WantsLogits(const v1::StepItem& item) {
  return item.rows_wanted() == v1::ROWS_WANTED_LOGITS ||
         item.rows_wanted() == v1::ROWS_WANTED_LOGITS_AND_LOGPROBS;
}

bool WantsLogprobs(const v1::StepItem& item) {
  return item.rows_wanted() == v1::ROWS_WANTED_LOGPROBS ||
         item.rows_wanted() == v1::ROWS_WANTED_LOGITS_AND_LOGPROBS;
}

bool Samples(const v1::StepItem& item, uint32_t row) {
  return item.sample() &&
         row + item.draft_tokens() + 1 >= static_cast<uint32_t>(item.token_ids_size());
}

uint32_t LogitsRows(const v1::StepItem& item) {
  return WantsLogits(item) ? static_cast<uint32_t>(item.token_ids_size()) - item.rows_from() : 0;
}

bool AllFinite(std::span<const float> values) {
  // Exponents of all ones are infinities and NaNs; without a branch the loop runs on vectors.
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t bad = 0;
  for (const float value : values) {
    bad |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1 : 0;
  }
  return bad == 0;
}

}  // namespace strata
