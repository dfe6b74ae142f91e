// Values that hold values: how deep they may nest, and that what holds itself is freed. Renders on
// threads of little stack, so that recursion without bound ends the test and not only a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "nlohmann/json.hpp"
#include "tests/cost.h"
#include "tests/counting_allocator.h"
#include "text/template/chat_template.h"
#include "text/template/template_limits.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

// glibc gives a thread 2 MiB where the stack of a process is unlimited, the least that a
// coordinator gets. Frames of sanitizers and of builds without optimization are several times as
// large.
#if defined(STRATA_SANITIZED) || !defined(__OPTIMIZE__)
constexpr size_t kStackBytes = 8 << 20;
#else
constexpr size_t kStackBytes = 2 << 20;
#endif

void RunWithLittleStack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  const auto run = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

absl::StatusOr<std::string> Render(const std::string& source, const TemplateLimits& limits = {}) {
  absl::StatusOr<std::string> output;
  RunWithLittleStack([&] {
    const auto chat_template = ParseChatTemplate(source, limits);
    output = chat_template.ok() ? (*chat_template)->Render(nlohmann::ordered_json::object(), 0)
                                : chat_template.status();
  });
  return output;
}

// ns.a = link, which holds the ns.a before, and so on.
std::string Chain(const std::string& link, int times) {
  return "{% set ns = namespace(a=1) %}{% for j in range(" + std::to_string(times) +
         ") %}{% set ns.a = " + link + " %}{% endfor %}";
}

TEST(HeldValues, WhateverHoldsValuesForGoodCountsAsALevel) {
  const std::vector<std::pair<std::string, int>> links = {
      {"[ns.a]", 1},
      {"(ns.a,)", 1},
      {"{1: ns.a}", 1},
      {"cycler(ns.a)", 1},
      {"joiner(ns.a)", 1},
      {"[ns.a].index", 2},
      {"{1: ns.a}.get", 2},
      {"{1: ns.a}.items()", 2},
      {"[ns.a] | map('default')", 1},
      {"[[ns.a]] | batch(1)", 3},
      {"[cycler([ns.a].index)].count", 5},
  };
  const int most = TemplateLimits().max_depth;
  for (const auto& [link, levels] : links) {
    SCOPED_TRACE(link);
    const auto fits = Render(Chain(link, most / levels) + "ok");
    EXPECT_TRUE(fits.ok()) << fits.status();
    const absl::Status deeper = Render(Chain(link, most / levels + 1)).status();
    EXPECT_EQ(ReasonOf(deeper), "TEMPLATE_LIMIT");
    EXPECT_THAT(deeper.message(), HasSubstr("nests deeper than 200 levels"));
    EXPECT_EQ(ReasonOf(Render(Chain(link, 99'999)).status()), "TEMPLATE_LIMIT");
  }
}

constexpr char kHold[] =
    "{% macro hold() %}{% set ns.a = caller %}{{ '' if caller is defined }}{% endmacro %}";

TEST(HeldValues, ChainsOfWhatChangesNeedNoStack) {
  const std::string begin = "{% set ns = namespace(a=1) %}" + std::string(kHold);
  for (const char* const turn : {
           "{% set ns.a = namespace(a=ns.a) %}",
           "{% set y = ns.a %}{% macro m() %}{% endmacro %}{% set ns.a = m %}",
           "{% set y = ns.a %}{% call hold() %}{% endcall %}",
           "{% for k in [ns.a] %}{% set ns.a = loop %}{% endfor %}",
           "{% for k in [ns.a] %}{% set ns.a = [loop.cycle] %}{% endfor %}",
           "{% set y = ns.a %}{% for k in [1] %}{% set ns.a = loop %}{% endfor %}",
           "{% for k in [1] %}{% set z = loop.changed(ns.a) %}{% set ns.a = loop %}{% endfor %}",
       }) {
    SCOPED_TRACE(turn);
    const std::string loop = "{% for j in range(20000) %}" + std::string(turn) + "{% endfor %}";
    const auto stays = Render(begin + loop + "ok");
    EXPECT_TRUE(stays.ok()) << stays.status();
    const auto goes = Render(begin + loop + "{% set ns.a = 1 %}ok");
    EXPECT_TRUE(goes.ok()) << goes.status();
    EXPECT_FALSE(Render(begin + loop + "{{ 1 / 0 }}").ok());
  }
}

TEST(HeldValues, TheDeepestRenderingsAreRefusedBeforeTheStackEnds) {
  const std::string ring = "{% set ns = namespace() %}{% set ns.a = [{1: ns}.items()] %}";
  for (const std::string& source : {
           ring + "{{ ns }}",
           ring + "{{ ns.a | string }}",
           ring + "{{ ns.a | pprint }}",
           Chain("namespace(a=ns.a)", 6000) + "{{ ns }}",
           std::string("{% for j in [1] recursive %}{% set x %}{% filter upper %}{{ '' ~ ('' ~ "
                       "loop([1])) }}{% endfilter %}{% endset %}{% endfor %}"),
           std::string("{% for j in [1] recursive %}{{ dict(a=[loop([1])]) }}{% endfor %}"),
           std::string("{% macro m(n) %}{% for i in [1] %}{% for j in [1] %}{% set x %}"
                       "{{ '' ~ ('' ~ (m(n - 1))) }}{% endset %}{% endfor %}{% endfor %}"
                       "{% endmacro %}{{ m(1) }}"),
       }) {
    SCOPED_TRACE(source);
    EXPECT_EQ(ReasonOf(Render(source).status()), "TEMPLATE_LIMIT");
  }
}

// 2 ** 60 items by number, though few objects.
TEST(HeldValues, HashesAndEqualityOfTuplesTakeSteps) {
  for (const char* const use :
       {"{{ {ns.a: 1} }}", "{{ {1: 2}.get(ns.a) }}", "{{ {1: 2}[ns.a] }}{{ {(1, 2): 1, ns.a: 2} }}",
        "{{ ns.a in {1: 2} }}", "{{ [ns.a] | unique | list }}", "{{ dict.fromkeys([ns.a]) }}"}) {
    SCOPED_TRACE(use);
    const absl::Status status = Render(Chain("(ns.a, ns.a)", 60) + use).status();
    EXPECT_EQ(ReasonOf(status), "TEMPLATE_LIMIT");
    EXPECT_THAT(status.message(), HasSubstr("steps"));
  }
  EXPECT_EQ(*Render("{% set d = {(1, 'a'): 'x', ('b', (2, none)): 'y'} %}{{ d[(1, 'a')] }}"
                    "{{ d.get(('b', (2, none))) }}{{ (1, 'b') in d }}"),
            "xyFalse");
}

// The address sanitizer fails this test, too, if one is left.
TEST(HeldValues, WhatHoldsItselfIsFreed) {
  const std::string begin = "{% set ns = namespace(a=1) %}" + std::string(kHold);
  for (const std::string& source : {
           std::string("{% for k in [1] %}{% set z = loop.changed(loop) %}{% endfor %}"),
           std::string("{% for k in [1] %}{% set z = loop.changed(loop) %}{{ 1 / 0 }}{% endfor %}"),
           begin + "{% for j in [1] %}{% for k in [1] %}{% set ns.a = loop %}{% endfor %}"
                   "{% set y = ns.a %}{% endfor %}",
           begin + "{% for j in [1] %}{% call hold() %}{% endcall %}{% set y = ns.a %}{% endfor %}",
           begin + "{% for j in [1] %}{% call hold() %}{% endcall %}{% set y = [ns.a] %}{{ 1 / 0 }}"
                   "{% endfor %}",
           begin + "{% macro m() %}{% endmacro %}{% set ns.b = [m, ns, cycler(ns, m)] %}",
       }) {
    SCOPED_TRACE(source);
    const auto chat_template = ParseChatTemplate(source);
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    const auto render = [&] {
      (void)(*chat_template)->Render(nlohmann::ordered_json::object(), 0);
    };
    render();  // What is made once for all is made now.
    const uint64_t live = testing::LiveBytes();
    render();
    EXPECT_EQ(testing::LiveBytes(), live);
  }
  EXPECT_EQ(testing::CountsAllocations(), testing::LiveBytes() > 0);
}

// A template may have names of half a megabyte, and make a value of one in a few steps.
TEST(HeldValues, LongNamesAreNotCopiedIntoEachValue) {
  const std::string name(50'000, 'n');
  const std::string begin = "{% set ns = namespace(a=1) %}{% macro hold(" + name +
                            ") %}{% set ns.a = namespace(a=ns.a, b=" + name +
                            ") %}{% endmacro %}{% for j in range(2000) %}";
  for (const std::string& turn : {
           std::string("{{ hold() }}"),
           "{% set ns.a = namespace(a=ns.a, b=loop." + name + ") %}",
           "{% set ns.a = namespace(a=ns.a, b=hold." + name + ") %}",
           "{% set ns.a = namespace(a=ns.a, b=ns." + name + ") %}",
           "{% set y = namespace() %}{% set y." + name + " = 1 %}",
       }) {
    SCOPED_TRACE(turn.substr(0, 60));
    testing::Cost cost;
    const auto output =
        testing::Measured([&] { return Render(begin + turn + "{% endfor %}ok"); }, &cost);
    EXPECT_TRUE(output.ok()) << output.status();
    EXPECT_LT(cost.bytes, uint64_t{16} << 20);
  }
}

TEST(HeldValues, WhatALoopWatchesCountsAsMemory) {
  testing::Cost cost;
  const auto output = testing::Measured(
      [] {
        return Render(
            "{% set ns = namespace(a=1) %}{% set l = range(10000) | list %}{% for j in range(300) "
            "%}"
            "{% for k in [ns.a] %}{% set y = loop.changed(*l) %}{% set ns.a = loop %}{% endfor %}"
            "{% endfor %}");
      },
      &cost);
  EXPECT_THAT(output.status().message(), HasSubstr("values of the template take more than"));
  EXPECT_LT(cost.bytes, 3 * TemplateLimits().max_value_bytes);
}

TEST(HeldValues, NamespacesOfManyMembersTakeStepsAndMemory) {
  std::string source = "{% set ns = namespace() %}";
  for (int i = 0; i < 3200; ++i) {
    source += "{% set ns.n" + std::to_string(i) + " = 1 %}";
  }
  const auto use = [](const std::string& text) {
    TemplateUse used;
    const auto chat_template = ParseChatTemplate(text);
    EXPECT_TRUE(chat_template.ok()) << chat_template.status();
    EXPECT_TRUE((*chat_template)->Render(nlohmann::ordered_json::object(), 0, &used).ok());
    return used;
  };
  const TemplateUse members = use(source);
  EXPECT_GT(members.value_bytes, 3200u * 100);
  const TemplateUse reads = use(source + "{% for j in range(100) %}{{ ns.n3199 }}{% endfor %}");
  EXPECT_GT(reads.steps, members.steps + 100 * 3200 / 16);
}

}  // namespace
}  // namespace strata
