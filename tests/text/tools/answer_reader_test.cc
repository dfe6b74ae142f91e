// What of an answer is text, thought and call, by the rows' names; golden_calls_test.cc has answers
// of published templates.
#include "text/tools/answer_reader.h"

#include <gtest/gtest.h>

#include <set>

#include "common/status.h"
#include "tests/text/tools/reading.h"

namespace strata {
namespace {

using Kind = AnswerEvent::Kind;

constexpr char kWeather[] =
    R"({"type": "function", "function": {"name": "weather", "parameters": {"properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}}}})";
constexpr char kNow[] = R"({"type": "function", "function": {"name": "now"}})";

struct Case {
  std::string tools;  // Names of rows.
  std::string thoughts = "none";
  bool in_thought = false;
  bool one_call = false;
  bool special = true;  // The rows' tokens are special ones.
};

std::vector<AnswerEvent> Events(const Case& one, const std::string& answer) {
  AnswerReaderOptions options;
  options.tools = ChooseToolFormat(one.tools, "").value();
  options.thoughts = ChooseThoughtFormat(one.thoughts, "").value();
  options.offered = OfferedTools::Parse({kWeather, kNow}).value();
  options.id_seed = "request";
  options.in_thought = one.in_thought;
  options.one_call = one.one_call;
  std::set<std::string_view> tokens;
  if (options.tools != nullptr && one.special) {
    tokens.insert(options.tools->tokens.begin(), options.tools->tokens.end());
  }
  options.is_special = [&](std::string_view text) { return tokens.contains(text); };
  const auto parts = testing::PartsOf(answer, {tokens.begin(), tokens.end()});
  auto events = testing::ReadWhole(options, parts);
  EXPECT_EQ(testing::Read(options, parts, [](size_t) { return true; }), events) << answer;
  return events;
}

// "text:..." and so on, one a line.
std::string Told(const Case& one, const std::string& answer) {
  std::string told;
  for (const AnswerEvent& event : Events(one, answer)) {
    switch (event.kind) {
      case Kind::kText:
        told += "text:" + event.text;
        break;
      case Kind::kThought:
        told += "thought:" + event.text;
        break;
      case Kind::kCall:
        told += "call:" + event.name;
        break;
      case Kind::kArguments:
        told += event.text;
        continue;
      case Kind::kCallEnd:
        told += event.whole ? "." : "!";
        break;
    }
    told += event.kind == Kind::kCall ? "" : "\n";
  }
  return told;
}

TEST(AnswerReader, ReadsEveryRowsCalls) {
  const std::string weather = "call:weather{\"city\": \"Bern\", \"days\": 2}.\n";
  const std::string arguments = R"({"city": "Bern", "days": 2})";
  EXPECT_EQ(Told({"hermes"}, "<tool_call>\n{\"name\": \"weather\", \"arguments\": " + arguments +
                                 "}\n</tool_call>"),
            weather);
  EXPECT_EQ(Told({"llama3_json"}, "{\"name\": \"weather\", \"parameters\": " + arguments + "}"),
            weather);
  EXPECT_EQ(Told({"llama3_json"}, "<|python_tag|>{\"name\": \"weather\", \"parameters\": " +
                                      arguments + "}; {\"name\": \"now\", \"parameters\": {}}"),
            weather + "call:now{}.\n");
  EXPECT_EQ(
      Told({"mistral"}, "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": " + arguments +
                            "}, {\"name\": \"now\", \"arguments\": {}, \"id\": \"123456789\"}]"),
      weather + "call:now{}.\n");
  EXPECT_EQ(Told({"mistral"}, "[TOOL_CALLS]weather[ARGS]" + arguments + "[TOOL_CALLS]now{}"),
            weather + "call:now{}.\n");
  EXPECT_EQ(Told({"mistral"}, "[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]" + arguments), weather);
  EXPECT_EQ(Told({"qwen3_coder"},
                 "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n"
                 "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"),
            weather);
  EXPECT_EQ(Told({"qwen3_coder"},  // As its models write it at times.
                 "<function=weather>\n<parameter=city>\nBern\n</parameter>\n"
                 "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"),
            weather);
  EXPECT_EQ(Told({"glm45"},
                 "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n"
                 "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
                 "<tool_call>now</tool_call>"),
            weather + "call:now{}.\n");
  EXPECT_EQ(Told({"minimax_m2"},
                 "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Bern"
                 "</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n"
                 "<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>"),
            weather + "call:now{}.\n");
  EXPECT_EQ(
      Told({"minimax_m1"}, "<tool_calls>\n{\"name\": \"weather\", \"arguments\": " + arguments +
                               "}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>"),
      weather + "call:now{}.\n");
  EXPECT_EQ(
      Told({"deepseek_v3"},
           "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" +
               arguments +
               "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
               "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      weather + "call:now{}.\n");
  EXPECT_EQ(
      Told({"deepseek_v31"}, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" +
                                 arguments + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      weather);
  EXPECT_EQ(Told({"deepseek_v32"},
                 "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n"
                 "<｜DSML｜parameter name=\"city\" string=\"true\">Bern</｜DSML｜parameter>\n"
                 "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n"
                 "</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
            weather);
  EXPECT_EQ(Told({"kimi_k2"},
                 "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
                 "<|tool_call_argument_begin|>" +
                     arguments +
                     "<|tool_call_end|><|tool_call_begin|>functions.now:1"
                     "<|tool_call_argument_begin|>{}<|tool_call_end|>"
                     "<|tool_calls_section_end|>"),
            weather + "call:now{}.\n");
  EXPECT_EQ(
      Told({"granite"}, "<|tool_call|>[{\"name\": \"weather\", \"arguments\": " + arguments + "}]"),
      weather);
  EXPECT_EQ(Told({"command_r7b"},
                 "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", "
                 "\"parameters\": " +
                     arguments + "}\n]<|END_ACTION|>"),
            weather);
  EXPECT_EQ(Told({"seed_oss"},
                 "<seed:tool_call>\n<function=weather>\n<parameter=city>Bern</parameter>\n"
                 "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>"),
            weather);
  const std::string python = "[weather(city='Bern', days=2), now()]";
  EXPECT_EQ(Told({"lfm2"}, "<|tool_call_start|>" + python + "<|tool_call_end|>Done."),
            weather + "call:now{}.\ntext:Done.\n");
  EXPECT_EQ(Told({"pythonic"}, python), weather + "call:now{}.\n");
  EXPECT_EQ(Told({"pythonic"}, "<|python_start|>" + python + "<|python_end|>"),
            weather + "call:now{}.\n");
  EXPECT_EQ(Told({"functionary_v31"},
                 "<function=weather>" + arguments + "</function>\n<function=now>{}</function>"),
            weather + "call:now{}.\n");
  EXPECT_EQ(Told({"harmony", "harmony"},
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
                 "to=functions.weather <|constrain|>json<|message|>" +
                     arguments + "<|call|>"),
            "thought:Hm.\n" + weather);
}

TEST(AnswerReader, EveryRowHasANameOfItsOwnAndIsRead) {
  std::set<std::string_view> names;
  for (const ToolFormat& row : ToolFormats()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.signs.empty()) << row.name;
    EXPECT_EQ(Told({std::string(row.name)}, row.name == "harmony" ? "Hello" : "Hello, you."),
              row.name == "harmony" ? "text:Hello\n" : "text:Hello, you.\n");
  }
}

TEST(AnswerReader, WhatOnlyLooksLikeACallIsTextAsItWas) {
  for (const char* answer :
       {"<tool_call>\n{\"name\": \"unknown\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": [1]}\n</tool_call>",
        "<tool_call>\n{\"name\": 3}\n</tool_call>", "<tool_call>{'name': 'weather'}</tool_call>",
        "<tool_call>", "<tool_ca", "a < b <tool_", "<tool_call>{\"name\": \"weather\"",
        "Write <tool_call> in front.", "{\"name\": \"weather\", \"arguments\": {}}",
        "<tool_call>[]</tool_call>"}) {
    EXPECT_EQ(Told({.tools = "hermes", .special = false}, answer),
              "text:" + std::string(answer) + "\n");
  }
  for (const char* answer :
       {"{\"name\": \"unknown\", \"parameters\": {}}", "{\"name\": \"weather\"}", "{}", "{",
        "{\"city\": \"Bern\"}", "It is {\"name\": \"now\", \"parameters\": {}}."}) {
    EXPECT_EQ(Told({"llama3_json"}, answer), "text:" + std::string(answer) + "\n");
  }
  for (const char* answer : {"[1] says so.", "[unknown(a=1)]", "[weather]", "[weather, now]", "[",
                             "[now", "It is [now()].", "[weather = 2]", "[]"}) {
    EXPECT_EQ(Told({"pythonic"}, answer), "text:" + std::string(answer) + "\n");
  }
  // One that has begun is cut off where it ceases to be one.
  EXPECT_EQ(Told({"pythonic"}, "[weather(city=Bern)]"), "call:weather{!\ntext:Bern)]\n");
  EXPECT_EQ(Told({"qwen3_coder"}, "<function=unknown>\n</function>"),
            "text:<function=unknown>\n</function>\n");
  EXPECT_EQ(Told({.tools = "mistral", .special = false}, "[TOOL_CALLS]unknown[ARGS]{}"),
            "text:[TOOL_CALLS]unknown[ARGS]{}\n");
}

TEST(AnswerReader, ACallBehindOneThatIsNoneIsRead) {
  EXPECT_EQ(Told({.tools = "hermes", .special = false},
                 "<tool_call><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"),
            "text:<tool_call>\ncall:now{}.\n");
}

TEST(AnswerReader, AMarkThatIsATokenOfTheVocabularyIsNeverMeantByText) {
  AnswerReaderOptions options;
  options.tools = ChooseToolFormat("mistral", "").value();
  options.offered = OfferedTools::Parse({kNow}).value();
  options.is_special = [](std::string_view text) { return text == "[TOOL_CALLS]"; };
  const std::string answer = "[TOOL_CALLS]now[ARGS]{}";
  EXPECT_EQ(testing::ReadWhole(options, {{answer, false}}).front().text, answer);
  EXPECT_EQ(testing::ReadWhole(options, testing::PartsOf(answer, {"[TOOL_CALLS]"})).front().kind,
            Kind::kCall);
}

TEST(AnswerReader, ArgumentsComeAsTheyAreWritten) {
  AnswerReaderOptions options;
  options.tools = ChooseToolFormat("hermes", "").value();
  options.offered = OfferedTools::Parse({kWeather}).value();
  AnswerReader reader(options);
  reader.Add("<tool_call>{\"name\": \"weather\", \"arguments\": {\"ci");
  const auto first = reader.Take();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].kind, Kind::kCall);
  EXPECT_EQ(first[1].text, "{\"ci");
  reader.Add("ty\": \"Be");
  EXPECT_EQ(reader.Take().front().text, "ty\": \"Be");
}

TEST(AnswerReader, ATextArgumentBetweenTagsComesAsItIsWritten) {
  AnswerReaderOptions options;
  options.tools = ChooseToolFormat("qwen3_coder", "").value();
  options.offered = OfferedTools::Parse({kWeather}).value();
  AnswerReader reader(options);
  reader.Add("<tool_call>\n<function=weather>\n<parameter=city>\nA \"long\" ");
  std::string said;
  for (const AnswerEvent& event : reader.Take()) said += event.text;
  EXPECT_EQ(said, "{\"city\": \"A \\\"long\\\" ");
  reader.Add("way\n</par");
  EXPECT_EQ(reader.Take().front().text, "way");
}

TEST(AnswerReader, ACallThatBreaksOffIsNotWholeAndWhatFollowsIsText) {
  EXPECT_EQ(Told({"hermes"}, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": Bern}}"),
            "call:weather{\"city\": !\ntext:Bern}}\n");
  EXPECT_EQ(Told({"hermes"}, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Be"),
            "call:weather{\"city\": \"Be!\n");
  EXPECT_EQ(Told({"qwen3_coder"}, "<function=weather>\n<parameter=days>\n12"),
            "call:weather{\"days\": \"12!\n");
}

TEST(AnswerReader, NamesBehindArgumentsAndArgumentsInStringsAreRead) {
  EXPECT_EQ(Told({"hermes"}, "<tool_call>{\"arguments\": {\"days\": 1}, \"name\": \"weather\"}"),
            "call:weather{\"days\": 1}.\n");
  EXPECT_EQ(Told({"hermes"},
                 R"(<tool_call>{"name": "weather", "arguments": "{\"days\": 1}"}</tool_call>)"),
            "call:weather{\"days\": 1}.\n");
  EXPECT_EQ(Told({"hermes"}, "<tool_call>{\"name\": \"now\"}</tool_call>"), "call:now{}.\n");
}

TEST(AnswerReader, ALineInAStringIsEscaped) {
  EXPECT_EQ(
      Told({"hermes"}, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"a\nb\"}}"),
      "call:weather{\"city\": \"a\\nb\"}.\n");
}

TEST(AnswerReader, TextThoughtsAndCallsAreApart) {
  const std::string call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(Told({"hermes", "think"}, "<think>\nHm,\nwell.\n</think>\n\nLet me see.\n\n" + call +
                                          "\n" + call + "\nDone.\n"),
            "thought:Hm,\nwell.\ntext:Let me see.\ncall:now{}.\ncall:now{}.\ntext:\nDone.\n\n");
  EXPECT_EQ(Told({"none", "think", true}, "Hm.</think>Yes."), "thought:Hm.\ntext:Yes.\n");
  EXPECT_EQ(Told({"none", "think", true}, "Hm. It go"), "thought:Hm. It go\n");
  EXPECT_EQ(Told({"none", "think"}, "<think></think>Yes."), "text:Yes.\n");
  EXPECT_EQ(Told({"none", "think"}, "No <think> here.</think>"), "text:No <think> here.</think>\n");
  EXPECT_EQ(Told({"none", "think"}, " A.\n"), "text: A.\n\n");
}

TEST(AnswerReader, OneCallIsAllWhereItIsToBeTheOnlyOne) {
  EXPECT_EQ(Told({.tools = "hermes", .one_call = true},
                 "<tool_call>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", "
                 "\"arguments\": {}}]</tool_call> and more"),
            "call:now{}.\n");
}

TEST(AnswerReader, ACallBeginsWithItsOpening) {
  const auto tools = OfferedTools::Parse({R"({"function": {"name": "f"}})"});
  AnswerReader reader({.tools = *ChooseToolFormat("hermes", ""), .offered = *tools});
  reader.Add("A { <tool_call");
  EXPECT_FALSE(reader.in_call());
  reader.Add(">");
  EXPECT_TRUE(reader.in_call());
  reader.Add("{\"name\": \"f\", \"arguments\": {}}");
  EXPECT_TRUE(reader.in_call());
  reader.Add("</tool_call> B");
  EXPECT_FALSE(reader.in_call());
}

TEST(AnswerReader, IdsAreAsTemplatesWantThem) {
  const auto id = [](const std::string& row, const std::string& answer) {
    return Events({row}, answer).front().id;
  };
  const std::string mistral = id("mistral", "[TOOL_CALLS]now[ARGS]{}");
  EXPECT_EQ(mistral.size(), 9u);
  EXPECT_EQ(id("kimi_k2",
               "<|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}<|tool_call_end|>"),
            "functions.now:3");
  const std::string hermes = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  const auto events = Events({"hermes"}, hermes + hermes);
  EXPECT_EQ(events[0].id.substr(0, 5), "call_");
  EXPECT_NE(events[0].id, events[3].id);
  EXPECT_EQ(events, Events({"hermes"}, hermes + hermes));
}

TEST(AnswerReader, HarmonysChannelsSayWhatIsMeant) {
  const Case one = {"harmony", "harmony"};
  EXPECT_EQ(
      Told(one,
           "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis"
           "<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"),
      "thought:One.\nTwo.\ntext:Yes.\n");
  EXPECT_EQ(Told(one, " to=functions.now<|channel|>commentary json<|message|>{}<|call|>"),
            "call:now{}.\n");
  EXPECT_EQ(Told(one,
                 "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant"
                 "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"),
            "text:Let me see.\ncall:now{}.\n");
  EXPECT_EQ(Told(one, "<|channel|>commentary to=functions.other<|message|>{}<|call|>"),
            "text:commentary to=functions.other{}\n");
  EXPECT_EQ(Told(one, "<|channel|>ana"), "");
}

TEST(AnswerReader, HarmonysHeaderThatIsTooLongIsText) {
  const Case one = {"harmony", "harmony"};
  const std::string header(10000, 'x');
  for (const char* begins : {"<|channel|>", "<|start|>"}) {
    EXPECT_EQ(Told(one, begins + header), "text:" + header + "\n");
    EXPECT_EQ(Told(one, begins + header + "<|message|>Yes.<|return|>"),
              "text:" + header + "Yes.\n");
  }
}

TEST(AnswerReader, AStringBeforeTheNameIsTextOnceItIsTooLong) {
  const std::string answer = "<tool_call>{\"a\": \"" + std::string(80 << 10, 'x') +
                             "\", \"name\": \"now\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(Told({.tools = "hermes", .special = false}, answer), "text:" + answer + "\n");
}

TEST(ToolFormats, UnknownNamesAreRefusedWithThoseThatThereAre) {
  const auto tools = ChooseToolFormat("hermess", "");
  ASSERT_FALSE(tools.ok());
  EXPECT_NE(tools.status().message().find("auto, none, harmony"), std::string::npos);
  EXPECT_FALSE(ChooseThoughtFormat("thinks", "").ok());
  EXPECT_EQ(ChooseToolFormat("none", "<tool_call>").value(), nullptr);
  EXPECT_EQ(ChooseToolFormat("", "plain").value(), nullptr);
}

}  // namespace
}  // namespace strata
