#include "coordinator/engine/result_check.h"

#include <cmath>

#include "common/status.h"
#include "common/token_mask_form.h"

namespace strata {
namespace {

// Each check returns what is wrong, or "".
std::string Count(uint64_t got, uint64_t expected, const char* what) {
  return got == expected
             ? ""
             : std::to_string(got) + " " + what + ", expected " + std::to_string(expected);
}

// -infinity is a logprob (of what a float cannot tell from impossible); NaN is none. Rounding may
// leave a certain token a little above 0.
bool IsLogprob(float value) { return !std::isnan(value) && value < 1e-3f; }

std::string CheckToken(const v1::TokenLogprob& token, uint32_t vocab, uint32_t most_top) {
  if (token.token_id() >= vocab) {
    return "token id " + std::to_string(token.token_id()) + ", the vocabulary has " +
           std::to_string(vocab);
  }
  if (token.top_size() > static_cast<int>(most_top)) {
    return std::to_string(token.top_size()) + " top logprobs, at most " + std::to_string(most_top) +
           " were asked for";
  }
  bool good = IsLogprob(token.logprob());
  for (const auto& top : token.top()) {
    good = good && top.token_id() < vocab && IsLogprob(top.logprob());
  }
  return good ? "" : "a bad logprob";
}

// Of every layer, and of the logits.
std::string CheckDigests(const SentItem& sent, uint32_t layers, const v1::ItemResult& item) {
  const bool wanted = sent.digest_layers && !item.has_error();
  std::string bad = Count(item.layer_digests_size(), wanted ? layers + 1 : 0, "layer digests");
  for (int i = 0; bad.empty() && i < item.layer_digests_size(); ++i) {
    bad = Count(item.layer_digests(i).layer(), i, "as a layer's index");
    if (bad.empty()) {
      bad = Count(item.layer_digests(i).rows_size(), sent.rows, "rows of a layer's digest");
    }
  }
  return bad;
}

// What was sampled: a token behind the last known one, and behind each draft that it was.
std::string CheckSampled(const SentItem& sent, const v1::ItemResult& item) {
  const int drafts = static_cast<int>(sent.drafts.size());
  if (item.has_error() || !sent.sample || drafts == 0) {
    return Count(item.tokens_size(), !item.has_error() && sent.sample ? 1 : 0, "tokens");
  }
  if (item.tokens_size() < 1 || item.tokens_size() > drafts + 1) {
    return Count(item.tokens_size(), drafts + 1, "tokens at most, and one at least");
  }
  for (int i = 0; i < item.tokens_size() && i < drafts; ++i) {
    const bool goes_on = i + 1 < item.tokens_size();
    if ((item.tokens(i).token_id() == sent.drafts[static_cast<size_t>(i)]) != goes_on) {
      return std::to_string(item.tokens_size()) + " tokens, where draft " + std::to_string(i) +
             (goes_on ? " came out otherwise" : " came out right");
    }
  }
  return "";
}

// Of the sampled token of this index, counted from the first one of the item; null: any.
const NextTokens* MaskOf(const SentItem& sent, int index) {
  if (index == 0) {
    return sent.mask.get();
  }
  const auto behind = static_cast<size_t>(index) - 1;
  return behind < sent.draft_masks.size() ? sent.draft_masks[behind].get() : nullptr;
}

std::string CheckItem(const SentItem& sent, const ResultShape& shape, const v1::ItemResult& item) {
  const uint32_t vocab = shape.vocab;
  if (item.sequence().request_id() != sent.request_id ||
      item.sequence().generation() != sent.sequence) {
    return "a name that was not sent";
  }
  const bool ok = !item.has_error();
  std::string bad = CheckSampled(sent, item);
  if (bad.empty()) {
    bad = Count(item.row_logprobs_size(), ok ? sent.row_logprobs : 0, "row logprobs");
  }
  if (bad.empty()) {
    bad = Count(item.payload_rows(), ok ? sent.payload_rows : 0, "payload rows");
  }
  if (bad.empty()) {
    bad = CheckDigests(sent, shape.layers, item);
  }
  for (int i = 0; bad.empty() && i < item.tokens_size(); ++i) {
    bad = CheckToken(item.tokens(i), vocab, sent.top_logprobs);
    const uint32_t id = item.tokens(i).token_id();
    const NextTokens* mask = MaskOf(sent, i);
    if (bad.empty() && mask != nullptr && !mask->bits.empty() && !MaskHas(mask->bits, id)) {
      bad = "token id " + std::to_string(id) + ", which the item's mask bars";
    }
  }
  for (int i = 0; bad.empty() && i < item.row_logprobs_size(); ++i) {
    bad = CheckToken(item.row_logprobs(i), vocab, sent.prompt_top_logprobs);
  }
  return bad;
}

std::string CheckStages(const ResultShape& shape, const v1::StepResult& header) {
  std::string bad = Count(header.stages_size(), shape.stages, "stages");
  for (int s = 0; bad.empty() && s < header.stages_size(); ++s) {
    const v1::StageKv& stage = header.stages(s);
    bad = Count(stage.stage(), s, "as a stage's index");
    if (bad.empty()) {
      bad = Count(stage.free_pages_size(), shape.kv_groups, "counts of free pages");
    }
    if (bad.empty()) {
      bad = Count(stage.total_pages_size(), shape.kv_groups, "counts of pages");
    }
  }
  return bad;
}

}  // namespace

absl::Status CheckResult(const SentStep& sent, const ResultShape& shape,
                         const ResultMessage& result) {
  const v1::StepResult& header = result.header;
  std::string bad = Count(header.items_size(), sent.items.size(), "items");
  if (bad.empty()) {
    bad = Count(header.commands_size(), sent.commands.size(), "commands");
  }
  if (bad.empty()) {
    bad = CheckStages(shape, header);
  }
  uint64_t payload_rows = 0;
  for (int i = 0; bad.empty() && i < header.items_size(); ++i) {
    const v1::ItemResult& item = header.items(i);
    bad = CheckItem(sent.items[static_cast<size_t>(i)], shape, item);
    if (bad.empty() && item.has_error() && item.error_stage() >= shape.stages) {
      bad = "stage " + std::to_string(item.error_stage()) + " as an error's";
    }
    if (!bad.empty()) {
      bad.insert(0, "an item (" + std::to_string(i) + ") with ");
    }
    payload_rows += item.payload_rows();
  }
  if (bad.empty()) {
    bad = Count(result.payload.size(), payload_rows * shape.vocab, "values of logits");
  }
  if (!bad.empty()) {
    return Error(absl::StatusCode::kDataLoss, "BAD_RESULT",
                 "the result of step " + std::to_string(sent.step) + " has " + bad)
        .Fact("step", sent.step);
  }
  return absl::OkStatus();
}

}  // namespace strata
