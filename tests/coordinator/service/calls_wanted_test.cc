#include "coordinator/service/request/calls_wanted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/golden.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr char kWeatherTool[] =
    R"({"type":"function","function":{"name":"weather","parameters":{"type":"object",
       "properties":{"days":{"type":"integer"}},"required":["days"]}}})";
constexpr char kStrictTool[] =
    R"({"type":"function","function":{"name":"ping","strict":true,"parameters":{"type":"object",
       "properties":{},"additionalProperties":false}}})";

// With the bundled model's tokenizer.
std::shared_ptr<ModelRuntime> ModelWithTools() {
  auto manifest = std::make_shared<ModelManifest>();
  manifest->chat_template = "{{ tools }}<tool_call>";
  auto model = std::make_shared<ModelRuntime>();
  model->name = "m";
  model->tokenizer =
      *ParseTokenizer(testing::ReadFileOrFail(testing::SourcePath("models/recall/tokenizer.json")));
  model->manifest = manifest;
  return model;
}

v1::ChatInput ChatWith(std::vector<std::string> tools, const std::string& choice,
                       const std::string& name = "") {
  v1::ChatInput chat;
  for (std::string& tool : tools) chat.add_tools(std::move(tool));
  chat.set_tool_choice(choice);
  chat.set_tool_name(name);
  return chat;
}

absl::StatusOr<std::optional<CallsWanted>> Wanted(const v1::ChatInput& chat,
                                                  bool has_constraint = false) {
  const auto model = ModelWithTools();
  const auto answer = ChatAnswerOf(chat, *model, "");
  if (!answer.ok()) return answer.status();
  return CallsWantedOf(*model, {}, *answer, has_constraint);
}

TEST(CallsWanted, NothingIsHeldWhereTheModelDecidesAndNoToolIsStrict) {
  for (const char* choice : {"", "auto", "none"}) {
    const auto wanted = Wanted(ChatWith({kWeatherTool}, choice));
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    EXPECT_FALSE(wanted->has_value()) << choice;
  }
  EXPECT_FALSE(Wanted(ChatWith({kStrictTool}, "none"), true)->has_value());
  EXPECT_FALSE(Wanted(ChatWith({}, "auto"), true)->has_value());
}

TEST(CallsWanted, AChoiceAStrictToolAndAConstraintHoldCalls) {
  const auto required = *Wanted(ChatWith({kWeatherTool, kStrictTool}, "required"));
  ASSERT_TRUE(required.has_value());
  EXPECT_TRUE(required->must_call && required->only.empty() && !required->one_call);
  const auto named = *Wanted(ChatWith({kWeatherTool, kStrictTool}, "tool", "ping"));
  ASSERT_TRUE(named.has_value());
  EXPECT_TRUE(named->must_call && named->one_call);
  EXPECT_EQ(named->only, "ping");
  EXPECT_NE(named->Source(), required->Source());
  const auto strict = *Wanted(ChatWith({kStrictTool}, "auto"));
  ASSERT_TRUE(strict.has_value());
  EXPECT_FALSE(strict->must_call);
  EXPECT_TRUE(Wanted(ChatWith({kWeatherTool}, "auto"), true)->has_value());
}

TEST(CallsWanted, BecomesAGrammarOfAnswers) {
  const auto model = ModelWithTools();
  const auto takes = [&](const v1::ChatInput& chat, const Grammar* text, std::string_view answer) {
    const auto grammar = GrammarOf(**Wanted(chat, text != nullptr), *model->tokenizer,
                                   model->tokenizer->vocab_size(), text, {});
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return Recognizer::Make(*grammar, 100'000)->Check(answer).complete;
  };
  const std::string call =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 2}}\n</tool_call>";
  EXPECT_TRUE(takes(ChatWith({kWeatherTool}, "required"), nullptr, call));
  EXPECT_TRUE(takes(ChatWith({kWeatherTool}, "required"), nullptr, call + "\n" + call));
  EXPECT_FALSE(takes(ChatWith({kWeatherTool}, "tool", "weather"), nullptr, call + "\n" + call));
  EXPECT_FALSE(takes(ChatWith({kWeatherTool}, "required"), nullptr, "It is fine."));
  const Grammar text = *GrammarOfChoices({"yes", "no"}, {});
  EXPECT_TRUE(takes(ChatWith({kWeatherTool}, "auto"), &text, call));
  EXPECT_TRUE(takes(ChatWith({kWeatherTool}, "auto"), &text, "yes"));
  EXPECT_FALSE(takes(ChatWith({kWeatherTool}, "auto"), &text, "maybe"));
  EXPECT_TRUE(takes(ChatWith({kStrictTool}, "auto"), nullptr, "Anything."));
}

TEST(CallsWanted, AChoiceThatCannotBeMetIsRefusedByName) {
  const auto refuse = [](const v1::ChatInput& chat) {
    const absl::Status status = Wanted(chat).status();
    EXPECT_EQ(ReasonOf(status), "BAD_FIELD") << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refuse(ChatWith({kWeatherTool}, "sometimes")), HasSubstr("required"));
  EXPECT_THAT(refuse(ChatWith({}, "required")), HasSubstr("no tools"));
  EXPECT_THAT(refuse(ChatWith({kWeatherTool}, "tool", "ping")), HasSubstr("none of that name"));
  EXPECT_THAT(refuse(ChatWith({kWeatherTool}, "tool")), HasSubstr("named"));
  EXPECT_THAT(refuse(ChatWith({kWeatherTool}, "auto", "weather")), HasSubstr("named"));
}

}  // namespace
}  // namespace strata
