#include "coordinator/service/constraints/answer_rules.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "coordinator/service/request/chat_answer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools/tool_formats.h"

namespace strata {
namespace {

absl::Status NotSupported(const std::string& field, const std::string& why) {
  return Error(absl::StatusCode::kInvalidArgument, "NOT_SUPPORTED", why)
      .Fact("field", field)
      .Hint("leave it out");
}

// As the one token that it is, or as a text's.
absl::StatusOr<std::vector<uint32_t>> IdsOf(const Tokenizer& tokenizer, std::string_view markup) {
  if (const std::optional<uint32_t> id = tokenizer.TokenToId(markup)) {
    return std::vector<uint32_t>{*id};
  }
  return tokenizer.Encode(markup, /*add_special_tokens=*/false);
}

}  // namespace

absl::StatusOr<std::optional<ThoughtRule>> ThoughtRuleOf(
    const ModelRuntime& model, const v1::LoadOptions& options, const ChatAnswer& chat,
    const std::optional<uint32_t>& budget_tokens) {
  ASSIGN_OR_RETURN(const ThoughtFormat* const format,
                   ChooseThoughtFormat(options.reasoning_format(), model.manifest->chat_template));
  if (format == nullptr) {
    if (budget_tokens.has_value()) {
      return NotSupported("thought_budget_tokens", "model '" + model.name +
                                                       "' is not known to think, so that its "
                                                       "thoughts have no budget");
    }
    return std::nullopt;
  }
  if (format->open.empty() && !budget_tokens.has_value() && chat.offered != nullptr) {
    return std::nullopt;  // The grammar of its calls has them.
  }
  if (format->open.empty()) {
    return NotSupported(
        budget_tokens.has_value() ? "thought_budget_tokens" : "constraint",
        "model '" + model.name + "' writes thoughts as channels, behind which none is held yet");
  }
  if (chat.prompt_end.ends_with(format->close)) {
    return std::nullopt;  // The prompt has it, and its end.
  }
  const Tokenizer& tokenizer = *model.tokenizer;
  ThoughtRule rule;
  rule.close = format->close;
  rule.opened = chat.prompt_end.ends_with(format->open);
  rule.budget_tokens = budget_tokens;
  ASSIGN_OR_RETURN(rule.close_ids, IdsOf(tokenizer, format->close));
  ASSIGN_OR_RETURN(rule.open_ids, IdsOf(tokenizer, format->open));
  if (rule.close_ids.size() == 1 && IsSpecialToken(tokenizer, rule.close_ids[0])) {
    rule.close_token = rule.close_ids[0];
  }
  return rule;
}

}  // namespace strata
