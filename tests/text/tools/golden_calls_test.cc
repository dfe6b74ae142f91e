// Answers as published chat templates write them (tests/golden/tools): what was called, said and
// thought is found, however the answer is cut.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "nlohmann/json.hpp"
#include "tests/golden.h"
#include "tests/text/tools/reading.h"
#include "text/tools/tool_formats.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerEvent::Kind;

std::shared_ptr<const OfferedTools> Offered() {
  const Json tools =
      Json::parse(testing::ReadFileOrFail(testing::GoldenPath("tools/offered.json")));
  std::vector<std::string> texts;
  for (const Json& tool : tools) {
    texts.push_back(tool.dump());
  }
  auto offered = OfferedTools::Parse(texts);
  EXPECT_TRUE(offered.ok());
  return *offered;
}

std::vector<Json> Cases() {
  std::vector<Json> cases;
  for (const std::string& line :
       testing::ReadLinesOrFail(testing::GoldenPath("tools/calls.jsonl"))) {
    cases.push_back(Json::parse(line));
  }
  return cases;
}

// The template's markup, and what it says of tools at all.
std::string TemplateOf(const Json& one) {
  std::string text = "{{ tools }}";
  for (const Json& mark : one["marks"]) {
    text += mark.get<std::string>();
  }
  return text;
}

std::string NameOf(const Json& name) { return name.is_null() ? "" : name.get<std::string>(); }

// Without what ends an answer.
std::string AnswerOf(const Json& one) {
  std::string answer = one["answer"].get<std::string>();
  for (const char* end : {"<|im_end|>", "<EOS>", "<|eot_id|>", "<｜end▁of▁sentence｜>",
                          "<seed:eos>", "<|END_OF_TURN_TOKEN|>", "<turn|>", "<|tool_response>"}) {
    answer.resize(std::min(answer.find(end), answer.size()));
  }
  return answer;
}

struct Prepared {
  AnswerReaderOptions options;
  std::vector<testing::Part> parts;
};

// With the format's tokens as special ones, or as text.
Prepared Prepare(const Json& one, const std::shared_ptr<const OfferedTools>& offered,
                 bool special) {
  Prepared prepared;
  AnswerReaderOptions& options = prepared.options;
  options.tools = ChooseToolFormat("", TemplateOf(one)).value();
  options.thoughts = ChooseThoughtFormat("", TemplateOf(one)).value();
  options.offered = offered;
  std::vector<std::string_view> tokens;
  if (options.tools != nullptr && (special || options.tools->name == "harmony")) {
    tokens = options.tools->tokens;
  }
  if (options.thoughts != nullptr && special && !options.thoughts->open.empty()) {
    const auto& parts = options.thoughts->tokens;
    if (parts.empty()) {
      tokens.insert(tokens.end(), {options.thoughts->open, options.thoughts->close});
    }
    tokens.insert(tokens.end(), parts.begin(), parts.end());
  }
  const std::set<std::string_view> known(tokens.begin(), tokens.end());
  options.is_special = [known](std::string_view text) { return known.contains(text); };
  if (options.thoughts != nullptr) {
    std::string prompt = one["prompt_end"].get<std::string>();
    while (!prompt.empty() && prompt.back() == '\n') {
      prompt.pop_back();
    }
    const std::string_view open = options.thoughts->open;
    options.in_thought = !open.empty() && prompt.ends_with(open);
    const std::string_view close = options.thoughts->close;
    options.behind_thought = !close.empty() && prompt.ends_with(close);
  }
  prepared.parts = testing::PartsOf(AnswerOf(one), tokens);
  return prepared;
}

void ExpectRead(const Json& one, const std::vector<AnswerEvent>& events) {
  std::string text, thought;
  std::vector<std::pair<std::string, std::string>> calls;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case Kind::kText:
        text += event.text;
        break;
      case Kind::kThought:
        thought += event.text;
        break;
      case Kind::kCall:
        calls.emplace_back(event.name, "");
        EXPECT_FALSE(event.id.empty());
        break;
      case Kind::kArguments:
        calls.back().second += event.text;
        break;
      case Kind::kCallEnd:
        EXPECT_TRUE(event.whole);
        break;
    }
  }
  EXPECT_EQ(text, one["content"].get<std::string>());
  EXPECT_EQ(thought, one["thought"].get<std::string>());
  ASSERT_EQ(calls.size(), one["calls"].size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].first, one["calls"][i]["name"].get<std::string>());
    const Json arguments = Json::parse(calls[i].second, nullptr, false);
    EXPECT_EQ(arguments, one["calls"][i]["arguments"]) << calls[i].second;
  }
}

TEST(GoldenCalls, TheRowIsTheOneThatTheTemplateShows) {
  std::map<std::string, std::pair<std::string, std::string>> seen;
  for (const Json& one : Cases()) {
    const auto tools = ChooseToolFormat("auto", TemplateOf(one));
    const auto thoughts = ChooseThoughtFormat("auto", TemplateOf(one));
    EXPECT_EQ(*tools == nullptr ? "" : (*tools)->name, NameOf(one["format"])) << one["source"];
    EXPECT_EQ(*thoughts == nullptr ? "" : (*thoughts)->name, NameOf(one["reasoning"]))
        << one["source"];
    seen[one["source"]] = {};
  }
  EXPECT_GE(seen.size(), 20u);
}

TEST(GoldenCalls, WhatATemplateWroteIsReadBack) {
  const auto offered = Offered();
  for (const Json& one : Cases()) {
    for (const bool special : {true, false}) {
      SCOPED_TRACE(one["source"].get<std::string>() + (special ? ", tokens: " : ", text: ") +
                   one["answer"].dump());
      const Prepared prepared = Prepare(one, offered, special);
      ExpectRead(one, testing::ReadWhole(prepared.options, prepared.parts));
    }
  }
}

TEST(GoldenCalls, ByteByByteIsTheSameAsAtOnce) {
  const auto offered = Offered();
  for (const Json& one : Cases()) {
    for (const bool special : {true, false}) {
      const Prepared prepared = Prepare(one, offered, special);
      EXPECT_EQ(testing::Read(prepared.options, prepared.parts, [](size_t) { return true; }),
                testing::ReadWhole(prepared.options, prepared.parts))
          << one["source"] << one["answer"];
    }
  }
}

TEST(GoldenCalls, CutAtAnyByteIsTheSameAsAtOnce) {
  const auto offered = Offered();
  std::map<std::string, Json> longest;  // Of a template.
  for (const Json& one : Cases()) {
    Json& kept = longest[one["source"].get<std::string>()];
    if (kept.is_null() || AnswerOf(one).size() > AnswerOf(kept).size()) kept = one;
  }
  for (const auto& [source, one] : longest) {
    const Prepared prepared = Prepare(one, offered, false);
    const auto whole = testing::ReadWhole(prepared.options, prepared.parts);
    for (size_t cut = 0; cut < AnswerOf(one).size(); ++cut) {
      ASSERT_EQ(
          testing::Read(prepared.options, prepared.parts, [cut](size_t at) { return at == cut; }),
          whole)
          << source << " at " << cut;
    }
  }
}

TEST(GoldenCalls, AnAnswerThatEndsAnywhereLosesNothingAndClaimsNothing) {
  const auto offered = Offered();
  std::set<std::string> done;
  for (const Json& one : Cases()) {
    if (one["calls"].size() != 1 || !done.insert(one["source"].get<std::string>()).second) {
      continue;
    }
    for (size_t size = 0; size < AnswerOf(one).size(); ++size) {
      Json cut = one;
      cut["answer"] = AnswerOf(one).substr(0, size);
      const Prepared prepared = Prepare(cut, offered, true);
      bool ended = false;
      std::string arguments;
      for (const AnswerEvent& event : testing::ReadWhole(prepared.options, prepared.parts)) {
        if (event.kind == Kind::kArguments) arguments += event.text;
        if (event.kind == Kind::kCallEnd) ended = event.whole;
      }
      EXPECT_EQ(ended, !arguments.empty() && IsJson(arguments))
          << one["source"] << " " << size << ": " << arguments;
    }
  }
}

}  // namespace
}  // namespace strata
