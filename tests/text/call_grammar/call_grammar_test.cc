#include "text/call_grammar/call_grammar.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/text/grammar/sampler.h"
#include "tests/text/tools/reading.h"
#include "text/call_grammar/call_writings.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"
#include "text/tools/answer_reader.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::Part;
using testing::Sampler;
using Kind = AnswerEvent::Kind;

constexpr size_t kDraws = 150;

const std::map<std::string, std::string>& Schemas() {
  static const auto& schemas =
      *new std::map<std::string, std::string>{{"get_weather", R"({"type": "object", "properties": {
          "city": {"type": "string", "description": "Where"},
          "days": {"type": "integer", "minimum": 1, "maximum": 14},
          "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"], "additionalProperties": false})"},
                                              {"edit", R"({"type": "object", "properties": {
          "text": {"type": "string", "maxLength": 8},
          "either": {"type": ["string", "number", "null"]},
          "code": {"type": ["string", "boolean", "array", "object"], "items": {"type": "integer"}},
          "any": {},
          "list": {"type": "array", "items": {"$ref": "#/$defs/item"}},
          "item": {"$ref": "#/$defs/item"},
          "maybe": {"anyOf": [{"type": "string", "pattern": "^[a-z<>/]*$"}, {"type": "null"}]}},
        "required": ["text", "either", "list", "any"],
        "$defs": {"item": {"type": "object", "properties": {
          "name": {"type": "string"}, "more": {"$ref": "#/$defs/item"}}, "required": ["name"]}}})"},
                                              {"ping", R"({"type": "object", "properties": {}})"}};
  return schemas;
}

std::string ToolOf(const std::string& name, const std::string& parameters, bool strict) {
  return R"({"type": "function", "function": {"name": ")" + name + R"(", "strict": )" +
         (strict ? "true" : "false") +
         (parameters.empty() ? "" : ", \"parameters\": " + parameters) + "}}";
}

std::shared_ptr<const OfferedTools> Offered(bool strict) {
  std::vector<std::string> tools;
  for (const auto& [name, schema] : Schemas()) {
    tools.push_back(ToolOf(name, schema, strict));
  }
  return *OfferedTools::Parse(tools);
}

// A vocabulary that has the format's tokens as special ones.
std::function<std::optional<uint32_t>(std::string_view)> TokensOf(const ToolFormat& format) {
  return [&format](std::string_view text) -> std::optional<uint32_t> {
    const auto found = std::ranges::find(format.tokens, text);
    if (found == format.tokens.end()) {
      return std::nullopt;
    }
    return static_cast<uint32_t>(found - format.tokens.begin()) + 1000;
  };
}

std::vector<Part> PartsOfDrawn(std::string_view text) {
  std::vector<Part> parts;
  while (!text.empty()) {
    const bool token = text.front() == '\xff';
    const size_t end = std::min(text.find(token ? '\xfe' : '\xff'), text.size());
    parts.push_back({std::string(text.substr(token ? 1 : 0, end - (token ? 1 : 0))), token});
    text.remove_prefix(token ? end + 1 : end);
  }
  return parts;
}

struct Case {
  bool special = false;
  bool strict = false;
  bool one_call = false;
  bool may_be_text = false;
  std::string only = "";
};

std::string Describe(const ToolFormat& format, const Case& c) {
  return std::string(format.name) + (c.special ? " special" : "") + (c.strict ? " strict" : "") +
         (c.one_call ? " one" : "") + (c.may_be_text ? " text" : "") +
         (c.only.empty() ? "" : " only " + c.only);
}

class Judge {
 public:
  explicit Judge(bool strict) {
    for (const auto& [name, schema] : Schemas()) {
      recognizers_.emplace(
          name,
          *Recognizer::Make(*GrammarOfSchema(schema, {.closed = strict, .limits = {}}), 200'000));
    }
  }
  bool Takes(const std::string& name, const std::string& arguments) const {
    return recognizers_.at(name).Check(arguments).complete;
  }

 private:
  std::map<std::string, Recognizer> recognizers_;
};

struct Seen {
  size_t calls = 0;
  size_t several = 0;
  size_t texts = 0;
};

Seen DrawAndRead(const ToolFormat& format, const Case& c) {
  const auto offered = Offered(c.strict);
  CallGrammarOptions options{
      .format = &format, .only = c.only, .one_call = c.one_call, .may_be_text = c.may_be_text};
  AnswerReaderOptions reading{.tools = &format, .offered = offered, .one_call = c.one_call};
  if (format.body == ToolFormat::Body::kHarmony) {
    reading.thoughts = *ChooseThoughtFormat("harmony", "");
  }
  if (c.special) {
    options.special_token = TokensOf(format);
    reading.is_special = [&](std::string_view text) {
      return options.special_token(text).has_value();
    };
  }
  const auto grammar = GrammarOfCalls(*offered, options);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  if (!grammar.ok()) return {};
  EXPECT_FALSE(EbnfOf(*grammar).empty());
  const Judge judge(c.strict);
  Sampler sampler(*grammar, 7);
  std::mt19937_64 random(11);
  Seen seen;
  for (size_t i = 0; i < kDraws; ++i) {
    const std::string text = sampler.Draw();
    const auto events =
        testing::Read(reading, PartsOfDrawn(text), [&](size_t) { return random() % 3 == 0; });
    size_t calls = 0;
    std::string name;
    std::string arguments;
    for (const AnswerEvent& event : events) {
      if (event.kind == Kind::kCall) {
        ++calls;
        name = event.name;
        arguments.clear();
      } else if (event.kind == Kind::kArguments) {
        arguments += event.text;
      } else if (event.kind == Kind::kCallEnd) {
        EXPECT_TRUE(event.whole) << text;
        EXPECT_TRUE(judge.Takes(name, arguments)) << text << "\n" << arguments;
        EXPECT_TRUE(c.only.empty() || name == c.only) << text;
      } else if (event.kind == Kind::kText) {
        ++seen.texts;
        EXPECT_TRUE(c.may_be_text) << "text: " << event.text << "\nof: " << text;
      }
    }
    EXPECT_TRUE(c.may_be_text || calls > 0) << text;
    EXPECT_TRUE(!c.one_call || calls <= 1) << text;
    seen.calls += calls;
    seen.several += calls > 1 ? 1 : 0;
    if (::testing::Test::HasFailure()) break;
  }
  return seen;
}

TEST(CallGrammar, WhatItHasIsReadAsCallsWhoseArgumentsAreValid) {
  for (const ToolFormat& format : ToolFormats()) {
    for (const bool special : {false, true}) {
      if (!special && format.body == ToolFormat::Body::kHarmony) continue;
      for (const Case& c :
           {Case{special, false, false, false, ""}, Case{special, true, false, false, ""},
            Case{special, true, true, false, "edit"}, Case{special, true, false, true, ""}}) {
        SCOPED_TRACE(Describe(format, c));
        const Seen seen = DrawAndRead(format, c);
        EXPECT_GT(seen.calls, 0U);
        EXPECT_TRUE(c.one_call || format.body == ToolFormat::Body::kHarmony || seen.several > 0);
        EXPECT_EQ(seen.texts > 0, c.may_be_text);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CallGrammar, EveryFormatIsWritten) {
  for (const ToolFormat& format : ToolFormats()) {
    EXPECT_NE(CallWritingOf(format.name, [](std::string_view) { return false; }), nullptr)
        << format.name;
  }
}

const ToolFormat& Format(std::string_view name) { return **ChooseToolFormat(name, ""); }

TEST(CallGrammar, AMarkerThatIsATokenIsThatTokenAndNoText) {
  const ToolFormat& hermes = Format("hermes");
  const auto tools = *OfferedTools::Parse({ToolOf("ping", "", true)});
  CallGrammarOptions options{.format = &hermes, .one_call = true};
  EXPECT_THAT(EbnfOf(*GrammarOfCalls(*tools, options)), HasSubstr(R"("<tool_call>\u000A{)"));
  options.special_token = TokensOf(hermes);
  const std::string ebnf = EbnfOf(*GrammarOfCalls(*tools, options));
  EXPECT_THAT(ebnf, HasSubstr("Token(1000) \"\\u000A{"));
  EXPECT_THAT(ebnf, HasSubstr("Token(1001)"));
  EXPECT_EQ(ebnf.find("tool_call"), std::string::npos) << ebnf;
}

TEST(CallGrammar, AToolWithoutParametersIsCalledWithoutArguments) {
  const auto tools = *OfferedTools::Parse({ToolOf("ping", "", false)});
  const auto grammar = GrammarOfCalls(*tools, {.format = &Format("llama3_json"), .one_call = true});
  const Recognizer recognizer = *Recognizer::Make(*grammar, 10'000);
  EXPECT_TRUE(recognizer.Check(R"({"name": "ping", "parameters": {}})").complete);
  EXPECT_EQ(recognizer.Check(R"({"name": "ping", "parameters": {"a": 1}})").prefix, 32U);
}

TEST(CallGrammar, NumbersOfParametersAreHeldToTheLastDigit) {
  const auto tools = *OfferedTools::Parse({ToolOf(
      "f", R"({"properties": {"n": {"const": 12345678901234567890123}}, "required": ["n"]})",
      true)});
  const auto grammar = GrammarOfCalls(*tools, {.format = &Format("llama3_json"), .one_call = true});
  const Recognizer recognizer = *Recognizer::Make(*grammar, 10'000);
  const auto takes = [&](const std::string& number) {
    return recognizer.Check(R"({"name": "f", "parameters": {"n": )" + number + "}}").complete;
  };
  EXPECT_TRUE(takes("12345678901234567890123"));
  EXPECT_FALSE(takes("12345678901234568000000"));
}

TEST(CallGrammar, AnAnswerIsCallsOrTheTextThatIsAskedFor) {
  const auto tools = *OfferedTools::Parse({ToolOf("ping", "", false)});
  const Grammar text = *GrammarOfSchema(R"({"type": "integer"})", {});
  const auto grammar =
      GrammarOfCalls(*tools, {.format = &Format("hermes"), .may_be_text = true, .text = &text});
  const Recognizer recognizer = *Recognizer::Make(*grammar, 10'000);
  EXPECT_TRUE(recognizer.Check("12").complete);
  EXPECT_TRUE(
      recognizer.Check("\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>")
          .complete);
  EXPECT_EQ(recognizer.Check("Hm").prefix, 0U);
  EXPECT_FALSE(recognizer.Check("\n12").complete);
  EXPECT_EQ(recognizer.Check("12<tool_call>").prefix, 2U);
}

// What is read of texts of the grammar: the text, or the name of the tool that is called.
std::set<std::string> ReadOfHarmony(const std::vector<std::string>& tools, const Grammar& text) {
  const ToolFormat& harmony = Format("harmony");
  const auto offered = *OfferedTools::Parse(tools);
  const auto grammar = GrammarOfCalls(
      *offered,
      {.format = &harmony, .may_be_text = true, .text = &text, .special_token = TokensOf(harmony)});
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  const AnswerReaderOptions reading{
      .tools = &harmony,
      .thoughts = *ChooseThoughtFormat("harmony", ""),
      .offered = offered,
      .is_special = [&](std::string_view name) { return TokensOf(harmony)(name).has_value(); }};
  Sampler sampler(*grammar, 3);
  std::set<std::string> read;
  for (int i = 0; i < 30; ++i) {
    for (const AnswerEvent& event : testing::ReadWhole(reading, PartsOfDrawn(sampler.Draw()))) {
      if (event.kind == Kind::kText) read.insert(event.text);
      if (event.kind == Kind::kCall) read.insert(event.name + "()");
    }
  }
  return read;
}

TEST(CallGrammar, TheFinalMessageIsHeldBesideCallsAndWithoutTools) {
  const Grammar text = *GrammarOfChoices({"yes", "no"}, {});
  EXPECT_EQ(ReadOfHarmony({ToolOf("ping", "", false)}, text),
            (std::set<std::string>{"yes", "no", "ping()"}));
  EXPECT_EQ(ReadOfHarmony({}, text), (std::set<std::string>{"yes", "no"}));
}

TEST(CallGrammar, NoValueHasTheTagInItThatEndsIt) {
  const auto tools = *OfferedTools::Parse({ToolOf(
      "a", R"({"type": "object", "properties": {"t": {"type": "string"}, "l": {"type": "array"}}})",
      false)});
  const auto grammar = GrammarOfCalls(*tools, {.format = &Format("seed_oss"), .one_call = true});
  const Recognizer recognizer = *Recognizer::Make(*grammar, 100'000);
  const auto takes = [&](const std::string& key, const std::string& value) {
    return recognizer
        .Check("<seed:tool_call>\n<function=a>\n<parameter=" + key + ">" + value +
               "</parameter>\n</function>\n</seed:tool_call>")
        .complete;
  };
  EXPECT_TRUE(takes("t", "<b> </paramete"));
  EXPECT_FALSE(takes("t", "a</parameter>b"));
  EXPECT_TRUE(takes("l", R"(["a\u003c/parameter>b"])"));
  EXPECT_FALSE(takes("l", R"(["a</parameter>b"])"));
}

TEST(CallGrammar, WhatCannotBeHeldIsRefusedByName) {
  const auto refuse = [](std::string_view format, const std::string& name,
                         const std::string& schema, const std::string& only = "") {
    const auto tools = *OfferedTools::Parse({ToolOf(name, schema, false)});
    return GrammarOfCalls(*tools, {.format = &Format(format), .only = only}).status();
  };
  const absl::Status name = refuse("qwen3_coder", "get weather", "");
  EXPECT_EQ(ReasonOf(name), "TOOL_NOT_HELD");
  EXPECT_THAT(std::string(name.message()), HasSubstr("qwen3_coder"));
  EXPECT_TRUE(refuse("hermes", "get weather", "").ok());
  const absl::Status key =
      refuse("glm45", "a", R"({"type": "object", "properties": {"<b>": {"type": "string"}}})");
  EXPECT_EQ(ReasonOf(key), "TOOL_NOT_HELD");
  EXPECT_EQ(ReasonOf(refuse("minimax_m2", "a", R"({"type": "object", "minProperties": 1})")),
            "TOOL_NOT_HELD");
  const absl::Status schema =
      refuse("hermes", "a",
             R"({"type": "object", "properties": {"l": {"type": "array", "uniqueItems": true}}})");
  EXPECT_EQ(ReasonOf(schema), "SCHEMA_UNSUPPORTED");
  EXPECT_THAT(std::string(schema.message()), HasSubstr("tool \"a\""));
  EXPECT_EQ(ReasonOf(refuse("hermes", "a", "", "b")), "BAD_FIELD");
  EXPECT_EQ(ReasonOf(refuse("harmony", "a", "")), "TOOL_NOT_HELD");
}

}  // namespace
}  // namespace strata
