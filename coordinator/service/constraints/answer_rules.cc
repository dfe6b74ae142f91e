#include "coordinator/service/constraints/answer_rules.h"

#include <map>
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

// Of a message in the channel of thoughts. What follows it begins with the next message's header.
absl::StatusOr<ThoughtRule> ChannelRuleOf(const Tokenizer& tokenizer, const ToolFormat& channels,
                                          const std::string& field) {
  std::map<std::string_view, uint32_t> ids;
  for (const std::string_view token : channels.tokens) {
    const std::optional<uint32_t> id = SpecialTokenOf(tokenizer, token);
    if (!id.has_value()) {
      return NotSupported(
          field,
          "the model writes thoughts as channels, and its vocabulary lacks " + std::string(token));
    }
    ids[token] = *id;
  }
  ThoughtRule rule;
  rule.close = "<|end|>";
  rule.close_token = ids[rule.close];
  rule.blanks_behind = false;
  ASSIGN_OR_RETURN(const std::vector<uint32_t> channel, tokenizer.Encode("analysis", false));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> role, tokenizer.Encode("assistant", false));
  rule.open_ids = {ids["<|channel|>"]};
  rule.open_ids.insert(rule.open_ids.end(), channel.begin(), channel.end());
  rule.open_ids.push_back(ids["<|message|>"]);
  rule.close_ids = {*rule.close_token, ids["<|start|>"]};
  rule.close_ids.insert(rule.close_ids.end(), role.begin(), role.end());
  for (const auto& [token, id] : ids) {
    if (token != rule.close) rule.barred_ids.push_back(id);
  }
  return rule;
}

}  // namespace

absl::StatusOr<std::optional<ThoughtRule>> ThoughtRuleOf(
    const ModelRuntime& model, const v1::LoadOptions& options, const ChatAnswer& chat,
    const std::optional<CallsWanted>& calls, const std::optional<uint32_t>& budget_tokens) {
  const std::string field = budget_tokens.has_value() ? "thought_budget_tokens" : "constraint";
  ASSIGN_OR_RETURN(const ToolFormat* const channels, ChannelsOf(model, options, chat));
  if (channels != nullptr) {
    if (calls.has_value() && calls->format != channels) {
      return NotSupported(field, "model '" + model.name +
                                     "' writes thoughts as channels and calls otherwise, so that "
                                     "its answers cannot be held");
    }
    ASSIGN_OR_RETURN(ThoughtRule rule, ChannelRuleOf(*model.tokenizer, *channels, field));
    rule.budget_tokens = budget_tokens;
    return rule;
  }
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
  if (format->open.empty() || chat.prompt_end.ends_with(format->close)) {
    return std::nullopt;  // The prompt has it and its end, or a message behind it.
  }
  const Tokenizer& tokenizer = *model.tokenizer;
  ThoughtRule rule;
  rule.close = format->close;
  rule.opened = BeginsThought(chat, *format);
  rule.budget_tokens = budget_tokens;
  ASSIGN_OR_RETURN(rule.close_ids, IdsOf(tokenizer, format->close));
  ASSIGN_OR_RETURN(rule.open_ids, IdsOf(tokenizer, format->open));
  if (rule.close_ids.size() == 1 && IsSpecialToken(tokenizer, rule.close_ids[0])) {
    rule.close_token = rule.close_ids[0];
  }
  return rule;
}

}  // namespace strata
