// The golden chat templates, snippets and bad templates, as transformers renders them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"
#include "coordinator/template/chat_template.h"
#include "coordinator/template/template_jsonl.h"
#include "coordinator/template/template_limits.h"
#include "nlohmann/json.hpp"
#include "tests/cost.h"
#include "tests/golden.h"

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

// What refusing a template may take. All values that live, and whatever is built of them while it
// grows and is copied, are within three times their limit.
constexpr double kMostMs = 50;
constexpr uint64_t kMostBytes = 3 * TemplateLimits().max_value_bytes;

TEST(GoldenTemplates, BadTemplatesAreRefusedSoonAndInBoundedMemory) {
  int seen = 0;
  testing::Cost most;
  for (const std::string& line :
       testing::ReadLinesOrFail(testing::GoldenPath("chat_templates/bad_templates.jsonl"))) {
    const Json bad = Json::parse(line);
    const std::string source = bad["source"].get<std::string>();
    SCOPED_TRACE(source.substr(0, 200));
    testing::Cost cost;
    // Whoever else computes on the same core makes it slower: the best of five counts.
    for (int tries = 0; tries < 5 && (tries == 0 || cost.seconds > 1e-3 * kMostMs); ++tries) {
      testing::Cost now;
      const Rendered rendered = testing::Measured([&] { return RenderCase(source, line); }, &now);
      EXPECT_FALSE(rendered.ok) << "gave " << rendered.text.substr(0, 300);
      EXPECT_FALSE(rendered.text.empty());
      cost.seconds = tries == 0 ? now.seconds : std::min(cost.seconds, now.seconds);
      cost.bytes = std::max(cost.bytes, now.bytes);
    }
    EXPECT_LT(1e3 * cost.seconds, kMostMs * testing::kSlower);
    EXPECT_LT(cost.bytes, kMostBytes + 16 * line.size());
    if (cost.seconds > most.seconds) {
      std::printf("%.1f ms: %s\n", 1e3 * cost.seconds, source.substr(0, 150).c_str());
    }
    if (cost.bytes > most.bytes) {
      std::printf("%.1f MiB: %s\n", static_cast<double>(cost.bytes) / (1 << 20),
                  source.substr(0, 150).c_str());
    }
    most = {std::max(most.bytes, cost.bytes), std::max(most.seconds, cost.seconds)};
    ++seen;
  }
  ASSERT_GT(seen, 0);
  // The count sees what templates allocate.
  EXPECT_TRUE(!testing::CountsAllocations() || most.bytes > uint64_t{1} << 20);
}

}  // namespace
}  // namespace strata
