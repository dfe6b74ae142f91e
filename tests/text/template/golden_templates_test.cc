// The golden chat templates, snippets and bad templates, as transformers renders them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"
#include "nlohmann/json.hpp"
#include "tests/cost.h"
#include "tests/golden.h"
#include "text/template/chat_template.h"
#include "text/template/template_jsonl.h"
#include "text/template/template_limits.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

struct Rendered {
  bool ok;
  std::string text;  // Output or message.
};

// `line` has "input" and perhaps "now"; it is served as the command line serves it.
Rendered RenderCase(const std::string& source, const std::string& line) {
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat_template = ParseChatTemplate(source);
  if (!chat_template.ok()) {
    return {false, std::string(chat_template.status().message())};
  }
  const Json answer = Json::parse(RenderLine(**chat_template, line));
  return answer.contains("output") ? Rendered{true, answer["output"].get<std::string>()}
                                   : Rendered{false, answer["error"].get<std::string>()};
}

// Whether it is as the case says, counted in `failed` if not.
void Check(const std::string& source, const std::string& line, int* failed) {
  const Json expected = Json::parse(line);
  const Rendered rendered = RenderCase(source, line);
  const bool should_fail = expected.contains("error");
  bool same = rendered.ok != should_fail;
  if (same && rendered.ok) {
    same = rendered.text == expected["output"].get<std::string>();
  } else if (same && expected["error_type"] == "TemplateError") {
    same = rendered.text == expected["error"].get<std::string>();
  }
  if (!same) {
    ++*failed;
    ADD_FAILURE() << source.substr(0, 300)
                  << "\n wanted: " << (should_fail ? expected["error"] : expected["output"]).dump()
                  << "\n got" << (rendered.ok ? ": " : " error: ")
                  << Json(rendered.text).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

std::vector<std::string> Templates() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::GoldenPath("chat_templates/templates"))) {
    names.push_back(entry.path().stem().string());
  }
  return names;
}

TEST(GoldenTemplates, EveryConversationOfEveryTemplate) {
  const std::vector<std::string> names = Templates();
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string source =
        testing::ReadFileOrFail(testing::GoldenPath("chat_templates/templates/" + name + ".jinja"));
    const std::vector<std::string> lines =
        testing::ReadLinesOrFail(testing::GoldenPath("chat_templates/cases/" + name + ".jsonl"));
    ASSERT_FALSE(lines.empty());
    int failed = 0;
    for (const std::string& line : lines) {
      Check(source, line, &failed);
    }
    EXPECT_EQ(failed, 0) << "of " << lines.size();
  }
}

void CheckSnippets(int tier) {
  int seen = 0;
  int failed = 0;
  for (const std::string& line :
       testing::ReadLinesOrFail(testing::GoldenPath("chat_templates/snippets.jsonl"))) {
    const Json snippet = Json::parse(line);
    if (snippet["tier"] == tier) {
      ++seen;
      Check(snippet["source"].get<std::string>(), line, &failed);
    }
  }
  ASSERT_GT(seen, 0);
  EXPECT_EQ(failed, 0) << "of " << seen;
}

TEST(GoldenTemplates, SnippetsOfTier1) { CheckSnippets(1); }
TEST(GoldenTemplates, SnippetsOfTier2) { CheckSnippets(2); }

// What it took to refuse a bad template.
struct Refused {
  TemplateUse use;
  testing::Cost cost;
};

Refused Refuse(const std::string& source, const Json& variables, const TemplateLimits& limits) {
  Refused refused;
  const absl::Status status = testing::Measured(
      [&] {
        const auto chat_template = ParseChatTemplate(source, limits);
        return chat_template.ok() ? (*chat_template)->Render(variables, 0, &refused.use).status()
                                  : chat_template.status();
      },
      &refused.cost);
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(status.message().empty());
  return refused;
}

// Of all values that live, and of whatever is built of them while it grows and is copied.
constexpr uint64_t kMostPerValueByte = 3;
// Of the tree of a template, and of its variables.
constexpr uint64_t kMostPerInputByte = 64;
// Allocations, and bytes of them, for a step: what takes no steps shows as too many of these.
constexpr uint64_t kMostAllocationsPerStep = 2;
constexpr uint64_t kMostBytesPerStep = 128;

// A tenth of the steps is a tenth of the work.
TEST(GoldenTemplates, BadTemplatesAreRefusedWithinCountedStepsAndBytes) {
  TemplateLimits fewer;
  fewer.max_steps /= 10;
  int seen = 0;
  int out_of_steps = 0;
  testing::Cost most;
  for (const std::string& line :
       testing::ReadLinesOrFail(testing::GoldenPath("chat_templates/bad_templates.jsonl"))) {
    const Json bad = Json::parse(line);
    const std::string source = bad["source"].get<std::string>();
    SCOPED_TRACE(source.substr(0, 200));
    const auto variables = ParseTemplateJson(bad["input"].dump());
    ASSERT_TRUE(variables.ok());
    for (const TemplateLimits& limits : {TemplateLimits(), fewer}) {
      const Refused refused = Refuse(source, *variables, limits);
      const TemplateUse& use = refused.use;
      const testing::Cost& cost = refused.cost;
      EXPECT_LE(use.value_bytes, limits.max_value_bytes);
      EXPECT_LE(use.output_bytes, limits.max_output_bytes);
      // The step that is too many may go over the largest value, character by character.
      EXPECT_LE(use.steps, limits.max_steps + limits.max_value_bytes / 8);
      const uint64_t beside =
          kMostPerValueByte * limits.max_value_bytes + kMostPerInputByte * line.size();
      EXPECT_LE(cost.bytes, beside);
      EXPECT_LE(cost.allocations, kMostAllocationsPerStep * use.steps + line.size());
      EXPECT_LE(cost.allocated_bytes, kMostBytesPerStep * use.steps + beside);
      out_of_steps += use.steps > limits.max_steps ? 1 : 0;
      most = {.bytes = std::max(most.bytes, cost.bytes),
              .allocations = std::max(most.allocations, cost.allocations),
              .allocated_bytes = std::max(most.allocated_bytes, cost.allocated_bytes)};
    }
    ++seen;
  }
  ASSERT_GT(seen, 0);
  EXPECT_GT(out_of_steps, 0);
  // The counts see what templates allocate.
  EXPECT_TRUE(!testing::CountsAllocations() || most.bytes > uint64_t{1} << 20);
  std::printf("at most %.1f MiB at once, %.1f MiB in %llu allocations\n",
              static_cast<double>(most.bytes) / (1 << 20),
              static_cast<double>(most.allocated_bytes) / (1 << 20),
              static_cast<unsigned long long>(most.allocations));
}

}  // namespace
}  // namespace strata
