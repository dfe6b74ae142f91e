#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "nlohmann/json.hpp"
#include "tests/golden.h"
#include "text/template/chat_template.h"
#include "text/template/template_jsonl.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string Render(const std::string& source, const Json& variables = Json::object(),
                   const TemplateLimits& limits = {}) {
  const auto chat_template = ParseChatTemplate(source, limits);
  if (!chat_template.ok()) {
    return "error: " + std::string(chat_template.status().message());
  }
  const absl::StatusOr<std::string> output = (*chat_template)->Render(variables, 0);
  return output.ok() ? *output : "error: " + std::string(output.status().message());
}

TEST(Template, RecallTemplateGivesItsPrompts) {
  const Json config = Json::parse(
      testing::ReadFileOrFail(testing::SourcePath("models/recall/tokenizer_config.json")));
  const auto chat_template = ParseChatTemplate(config["chat_template"].get<std::string>());
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const Json variables = {{"messages", {{{"role", "user"}, {"content", " Hi. "}}}},
                          {"add_generation_prompt", true},
                          {"bos_token", "<|begin_of_text|>"}};
  const auto output = (*chat_template)->Render(variables, 0);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output,
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(Template, RaisedMessagesPassUnchangedAndOthersNameTheLine) {
  EXPECT_EQ(Render("{{ raise_exception('Roles must alternate') }}"), "error: Roles must alternate");
  EXPECT_THAT(Render("a\nb\n{{ 1 +\n }}"), HasSubstr("line 4"));
  EXPECT_THAT(Render("a\n\n{{ missing.x }}"), HasSubstr("line 3: 'missing' is undefined"));
  EXPECT_THAT(Render("{% macro m() %}\n\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}"),
              HasSubstr("line 3: division by zero"));
}

TEST(Template, ErrorsAreTyped) {
  const auto syntax = ParseChatTemplate("{% if %}");
  EXPECT_EQ(ReasonOf(syntax.status()), "TEMPLATE_SYNTAX");
  const auto raises = ParseChatTemplate("{{ raise_exception('x') }}");
  ASSERT_TRUE(raises.ok());
  EXPECT_EQ(ReasonOf((*raises)->Render(Json::object(), 0).status()), "TEMPLATE_RAISED");
  const auto loops = ParseChatTemplate("{% for i in range(9) %}x{% endfor %}", {.max_steps = 8});
  ASSERT_TRUE(loops.ok());
  EXPECT_EQ(ReasonOf((*loops)->Render(Json::object(), 0).status()), "TEMPLATE_LIMIT");
}

TEST(Template, EachLimitIsKept) {
  EXPECT_THAT(Render("{% for i in range(99) %}{% endfor %}", Json::object(), {.max_steps = 50}),
              HasSubstr("more than 50 steps"));
  EXPECT_THAT(Render("{% for i in range(99) %}0123456789{% endfor %}", Json::object(),
                     {.max_output_bytes = 100}),
              HasSubstr("writes more than 100 bytes"));
  EXPECT_THAT(Render("{{ ('x' * 5000) | length }}", Json::object(), {.max_value_bytes = 1000}),
              HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(Render("{% set a = 'x' * 500 %}{% set b = 'y' * 500 %}{{ a | length }}",
                     Json::object(), {.max_value_bytes = 1000}),
              HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(Render("{{ ((((((1)))))) }}", Json::object(), {.max_depth = 4}),
              HasSubstr("deeper than 4"));
  EXPECT_THAT(Render("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}"),
              HasSubstr("deeper than 200"));
  EXPECT_THAT(Render("0123456789", Json::object(), {.max_source_bytes = 9}),
              HasSubstr("longer than 9 bytes"));
  EXPECT_THAT(Render("{{ 1 }}{{ 2 }}", Json::object(), {.max_tokens = 5}),
              HasSubstr("more than 5 tokens"));
  EXPECT_THAT(Render("{{ [1, 2, 3] }}", Json::object(), {.max_expressions = 3}),
              HasSubstr("more than 3 expressions"));
}

TEST(Template, ARenderingSaysWhatItTookAndStopsAtTheSameStepWhoeverRunsIt) {
  const char* const source = "{% for i in range(99) %}{{ 'x' * 100 }}{% endfor %}";
  const auto unlimited = ParseChatTemplate(source);
  ASSERT_TRUE(unlimited.ok());
  TemplateUse whole;
  ASSERT_TRUE((*unlimited)->Render(Json::object(), 0, &whole).ok());
  EXPECT_EQ(whole.output_bytes, 9900u);
  EXPECT_GT(whole.value_bytes, 100u);
  EXPECT_LT(whole.value_bytes, 9900u);
  for (const uint64_t short_by : {0, 1}) {
    const auto limited = ParseChatTemplate(source, {.max_steps = whole.steps - short_by});
    ASSERT_TRUE(limited.ok());
    TemplateUse use;
    EXPECT_EQ((*limited)->Render(Json::object(), 0, &use).ok(), short_by == 0);
    EXPECT_EQ(use.steps, whole.steps);
    EXPECT_EQ(use.output_bytes, whole.output_bytes);
  }
}

TEST(Template, MemoryThatIsFreeAgainDoesNotCount) {
  EXPECT_EQ(Render("{% for i in range(100) %}{% set a = 'x' * 10000 %}{% endfor %}ok",
                   Json::object(), {.max_value_bytes = 100'000}),
            "ok");
  EXPECT_EQ(Render("{% for i in range(50) %}{% set t %}{{ 'x' * 1000 }}{% endset %}{% endfor %}ok",
                   Json::object(), {.max_output_bytes = 10'000}),
            "ok");
}

TEST(Template, LongChainsOfOperatorsAreNotDeep) {
  std::string sum = "{{ 0", logical = "{{ false";
  for (int i = 0; i < 5000; ++i) {
    sum += " + 1";
    logical += " or false";
  }
  EXPECT_EQ(Render(sum + " }}"), "5000");
  EXPECT_EQ(Render(logical + " }}"), "False");
}

TEST(Template, ObjectsThatHoldEachOtherAreFreed) {
  // The address sanitizer fails this test if one is left.
  EXPECT_EQ(Render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                   "{% set a.m = [a, b] %}{% macro m() %}{{ a.m is defined }}{% endmacro %}"
                   "{% set b.m = m %}{% set c = cycler(m, a) %}{% set a.c = c %}{{ m() }}"),
            "True");
  EXPECT_EQ(Render("{% set s = namespace(c=namespace()) %}{% for i in range(20000) %}"
                   "{% set c = s.c %}{% set n = namespace() %}{% set c.next = n %}"
                   "{% set s.c = n %}{% endfor %}ok"),
            "ok");
}

TEST(Template, ConditionOfALoopSeesWhatItsBodyDid) {
  EXPECT_EQ(Render("{% set n = namespace(c=0) %}{% for i in range(9) if n.c < 2 %}"
                   "{% set n.c = n.c + 1 %}{{ i }}{% endfor %}"),
            "01");
  EXPECT_EQ(Render("{% for i in range(9) if i is odd %}{{ loop.revindex }}{{ i }} {% endfor %}"),
            "41 33 25 17 ");
}

TEST(Template, BreakInTheElsePartLeavesTheLoopAround) {
  EXPECT_EQ(Render("{% for i in [1, 2, 3] %}{% for j in [] %}{% else %}{{ i }}{% break %}"
                   "{% endfor %}never{% endfor %}"),
            "1");
}

TEST(Template, IteratorsAreUsedUp) {
  EXPECT_EQ(Render("{% set it = [1, 2] | map('string') %}{{ it | join }}|{{ it | join }}"), "12|");
  EXPECT_THAT(Render("{{ [1] | map('string') | length }}"), HasSubstr("has no len()"));
}

TEST(Template, ErrorsOfLazyFiltersComeWhenTheyAreWalked) {
  EXPECT_EQ(Render("{% set it = 5 | map('upper') %}ok"), "ok");
  EXPECT_EQ(Render("{{ [[1], 2] | map('first') | first }}"), "1");
  EXPECT_THAT(Render("{{ [[1], 2] | map('first') | list }}"), HasSubstr("not iterable"));
  EXPECT_EQ(Render("{{ none | selectattr('x') | list }}"), "[]");
}

TEST(Template, UnknownFiltersInsideAnIfAreErrorsWhereTheyAreReached) {
  EXPECT_EQ(Render("{% if false %}{{ 1 | nope }}{% endif %}ok"), "ok");
  EXPECT_EQ(Render("{{ 'ok' if true else 1 | nope }}"), "ok");
  EXPECT_THAT(Render("{% if true %}{{ 1 | nope }}{% endif %}"), HasSubstr("'nope'"));
  EXPECT_THAT(Render("{% for x in [] %}{{ 1 is nope }}{% endfor %}"), HasSubstr("'nope'"));
  EXPECT_THAT(Render("{% if false %}{% for x in [] %}{{ 1 | nope }}{% endfor %}{% endif %}"),
              HasSubstr("'nope'"));
}

TEST(Template, MutatorsShadowKeysAndPrivateKeysAreFound) {
  const Json variables = {{"d", {{"pop", 1}, {"_x", 2}, {"__class__", 3}}}};
  EXPECT_EQ(Render("{{ d.pop is defined }}{{ d['pop'] }}{{ d._x }}{{ d['__class__'] }}", variables),
            "False123");
}

TEST(Template, SlicesOfWhatHasNoneAreErrors) {
  EXPECT_THAT(Render("{{ none[1:] }}"), HasSubstr("NoneType"));
  EXPECT_THAT(Render("{{ {'a': 1}[1:] }}"), HasSubstr("dict"));
  EXPECT_EQ(Render("{{ {'a': 1}[missing] is defined }}"), "False");
}

TEST(Template, VariablesThatAreNoObjectAreRefused) {
  EXPECT_THAT(Render("x", Json::array()), HasSubstr("must be a JSON object"));
}

TEST(Template, DeepVariablesAreRefused) {
  Json deep = 1;
  for (int i = 0; i < 150; ++i) {
    deep = Json::array({deep});
  }
  EXPECT_THAT(Render("{{ x }}", {{"x", deep}}), HasSubstr("nest deeper"));
}

TEST(Template, InvalidUtf8NeverFailsBadly) {
  const std::string broken = "a\xff\xe4\xb8\xc0z";
  EXPECT_EQ(Render("{{ x | length }}{{ x[::-1] | length }}{{ x | upper | length }}"
                   "{{ x.split('z') | length }}{{ x | first }}{{ x | last }}",
                   {{"x", broken}}),
            "6662az");
}

TEST(Template, OneTemplateServesManyThreads) {
  const auto chat_template = ParseChatTemplate(
      "{% for m in messages %}{{ m.content | trim }}{{ 'é中'[0] }}{{ loop.index }}{% endfor %}");
  ASSERT_TRUE(chat_template.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const Json variables = {{"messages", {{{"content", " x "}}, {{"content", "y"}}}}};
        EXPECT_EQ((*chat_template)->Render(variables, 0).value(), "xé1yé2");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(TemplateLine, AnswersOutputOrError) {
  const auto chat_template = ParseChatTemplate("{{ x }}|{{ strftime_now('%Y-%m-%d %H') }}").value();
  EXPECT_EQ(RenderLine(*chat_template, R"({"input":{"x":"é\n"},"now":"2026-03-05T09:07:05"})"),
            R"({"output":"é\n|2026-03-05 09"})");
  EXPECT_EQ(RenderLine(*chat_template, R"({"input":{"x":1},"now":86400})"),
            R"({"output":"1|1970-01-02 00"})");
  EXPECT_EQ(RenderLine(*chat_template, R"({"input":{}})", 3600), R"({"output":"|1970-01-01 01"})");
  EXPECT_THAT(RenderLine(*chat_template, R"({"input":{"x":1},"now":"soon"})"),
              HasSubstr(R"({"error":"now must be)"));
  EXPECT_THAT(RenderLine(*chat_template, "{"), HasSubstr(R"({"error":"not a JSON document)"));
  EXPECT_THAT(RenderLine(*chat_template, "[]"), HasSubstr(R"({"error":)"));
  EXPECT_THAT(RenderLine(*chat_template, std::string(100'000, '[')), HasSubstr("nested deeper"));
}

TEST(TemplateLine, IntegersKeepTheirDigits) {
  const auto chat_template = ParseChatTemplate("{{ x | tojson }}").value();
  EXPECT_EQ(RenderLine(*chat_template,
                       R"({"input":{"x":[18446744073709551615,-123456789012345678901234567890]}})"),
            R"({"output":"[18446744073709551615, -123456789012345678901234567890]"})");
}

}  // namespace
}  // namespace strata
