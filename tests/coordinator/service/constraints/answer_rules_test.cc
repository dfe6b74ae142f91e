#include "coordinator/service/constraints/answer_rules.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "coordinator/service/request/calls_wanted.h"
#include "tests/text/tokenizer/small_tokenizer.h"
#include "text/grammar/constraint.h"

namespace strata {
namespace {

// gpt-oss' special tokens, from id 259 on.
std::vector<std::string> Channels() {
  return {"<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
          "<|constrain|>", "<|return|>", "<|call|>"};
}
constexpr uint32_t kStart = 259, kEnd = 260, kMessage = 261, kChannel = 262;

std::shared_ptr<ModelRuntime> ModelOf(const std::string& chat_template,
                                      const std::vector<std::string>& special) {
  auto json = testing::SmallTokenizer();
  for (const std::string& token : special) {
    json["added_tokens"].push_back(
        testing::Added(token, {{"id", 259 + json["added_tokens"].size()}}));
  }
  auto manifest = std::make_shared<ModelManifest>();
  manifest->chat_template = chat_template;
  auto model = std::make_shared<ModelRuntime>();
  model->name = "m";
  model->tokenizer = *ParseTokenizer(json.dump());
  model->manifest = manifest;
  return model;
}

constexpr char kHarmony[] = "{{ tools }}<|channel|>analysis<|message|>";

struct Asked {
  std::vector<std::string> tools = {};
  bool constraint = true;
  std::optional<uint32_t> budget = std::nullopt;
  std::string prompt = "<|end|><|start|>assistant";
};

struct Rules {
  std::optional<CallsWanted> calls;
  std::optional<ThoughtRule> thought;
};

absl::StatusOr<Rules> RulesOf(const ModelRuntime& model, const Asked& asked,
                              const v1::LoadOptions& options = {}) {
  v1::ChatInput chat;
  for (const std::string& tool : asked.tools) chat.add_tools(tool);
  ASSIGN_OR_RETURN(const ChatAnswer answer, ChatAnswerOf(chat, model, asked.prompt));
  Rules rules;
  ASSIGN_OR_RETURN(rules.calls, CallsWantedOf(model, options, answer, asked.constraint));
  ASSIGN_OR_RETURN(rules.thought, ThoughtRuleOf(model, options, answer, rules.calls, asked.budget));
  return rules;
}

std::vector<uint32_t> Ids(const ModelRuntime& model, const std::string& text) {
  return *model.tokenizer->Encode(text, false);
}

TEST(AnswerRules, AChannelOfThoughtsIsAMessageBeforeTheNextOnesHeader) {
  const auto model = ModelOf(kHarmony, Channels());
  const auto rules = RulesOf(*model, {.budget = 5});
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_TRUE(rules->thought.has_value());
  const ThoughtRule& rule = *rules->thought;
  std::vector<uint32_t> open = Ids(*model, "analysis");
  open.insert(open.begin(), kChannel);
  open.push_back(kMessage);
  EXPECT_EQ(rule.open_ids, open);
  EXPECT_EQ(rule.close_token, kEnd);
  std::vector<uint32_t> close = Ids(*model, "assistant");
  close.insert(close.begin(), {kEnd, kStart});
  EXPECT_EQ(rule.close_ids, close);
  EXPECT_EQ(rule.barred_ids.size(), 6u);
  EXPECT_EQ(rule.budget_tokens, 5u);
  EXPECT_FALSE(rule.blanks_behind || rule.opened);
  // The text is held as the message that it is, though no tools are offered.
  ASSERT_TRUE(rules->calls.has_value());
  EXPECT_EQ(rules->calls->format->name, "harmony");
  const Grammar text = *GrammarOfChoices({"yes"}, {});
  const auto grammar =
      GrammarOf(*rules->calls, *model->tokenizer, model->tokenizer->vocab_size(), &text, {});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_NE(EbnfOf(*grammar).find("Token(262) \"final\" Token(261)"), std::string::npos)
      << EbnfOf(*grammar);
}

TEST(AnswerRules, NothingIsHeldInChannelsThatNobodyAskedFor) {
  const auto model = ModelOf(kHarmony, Channels());
  EXPECT_FALSE(RulesOf(*model, {.constraint = false})->calls.has_value());
  // The prompt has begun a message, which the answer goes on with.
  const auto within = RulesOf(*model, {.prompt = "<|channel|>final<|message|>It is"});
  ASSERT_TRUE(within.ok()) << within.status();
  EXPECT_FALSE(within->calls.has_value() || within->thought.has_value());
}

TEST(AnswerRules, ChannelsWithoutTheirTokensAreRefusedByName) {
  const auto lacks = RulesOf(*ModelOf(kHarmony, {"<|start|>", "<|end|>"}), {});
  EXPECT_EQ(ReasonOf(lacks.status()), "NOT_SUPPORTED");
  EXPECT_NE(lacks.status().message().find("<|"), std::string::npos) << lacks.status();
  v1::LoadOptions options;
  options.set_tool_format("hermes");
  const auto mixed = RulesOf(
      *ModelOf(kHarmony, Channels()),
      {.tools = {R"({"type": "function", "function": {"name": "f", "strict": true}})"}}, options);
  EXPECT_EQ(ReasonOf(mixed.status()), "NOT_SUPPORTED") << mixed.status();
}

TEST(AnswerRules, ABudgetWantsAModelThatThinks) {
  const auto plain = ModelOf("{{ tools }}<tool_call>", {});
  EXPECT_EQ(ReasonOf(RulesOf(*plain, {.budget = 3}).status()), "NOT_SUPPORTED");
  const auto thinks = ModelOf("<think></think>", {});
  const auto rules = RulesOf(*thinks, {.budget = 3, .prompt = "assistant\n<think>\n"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_TRUE(rules->thought.has_value());
  EXPECT_TRUE(rules->thought->opened && rules->thought->blanks_behind);
  EXPECT_EQ(rules->thought->close, "</think>");
  EXPECT_FALSE(RulesOf(*thinks, {.prompt = "<think></think>"})->thought.has_value());
}

}  // namespace
}  // namespace strata
