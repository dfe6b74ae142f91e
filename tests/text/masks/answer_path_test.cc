// Sets behind tokens that an answer may have are those that it has once it has them.
#include "text/masks/answer_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/token_mask_form.h"

namespace strata {
namespace {

using Ids = std::vector<uint32_t>;

// Letters, marks, a few longer tokens, and special ones without bytes.
const std::vector<std::string>& Tokens() {
  static const auto& tokens = *[] {
    auto* made = new std::vector<std::string>;
    for (char c = ' '; c < 127; ++c) made->emplace_back(1, c);
    for (const char* token : {"na", "name", "names", "\"n", "\":", "</", "\n"}) {
      made->emplace_back(token);
    }
    made->emplace_back("");  // Ends an answer.
    made->emplace_back("");  // Ends a thought.
    return made;
  }();
  return tokens;
}
const auto kStop = static_cast<uint32_t>(Tokens().size() - 2);
const uint32_t kClose = kStop + 1;

uint32_t Id(const std::string& token) {
  return static_cast<uint32_t>(std::find(Tokens().begin(), Tokens().end(), token) -
                               Tokens().begin());
}

std::shared_ptr<const MaskVocabulary> Vocabulary() {
  static const auto& made =
      *new std::shared_ptr<const MaskVocabulary>(*MaskVocabulary::Make(Tokens(), {int32_t(kStop)}));
  return made;
}

std::unique_ptr<AnswerMatcher> Matcher(const std::string& ebnf,
                                       std::optional<ThoughtRule> thought = std::nullopt) {
  auto plan = std::make_shared<AnswerPlan>();
  plan->rule.thought = std::move(thought);
  plan->vocabulary = Vocabulary();
  plan->blanks = BlankTokens(Tokens());
  if (!ebnf.empty()) {
    plan->grammar = *CompiledGrammar::Compile(ebnf, plan->vocabulary->compiled);
  }
  return *AnswerMatcher::Make(std::move(plan));
}

ThoughtRule Thought(std::optional<uint32_t> budget) {
  return {.close = "</think>",
          .close_token = kClose,
          .close_ids = {kClose},
          .opened = true,
          .budget_tokens = budget};
}

Ids IdsOf(const std::vector<uint32_t>& words) {
  Ids ids;
  for (uint32_t id = 0; id < Tokens().size(); ++id) {
    if (MaskHas(words, id)) ids.push_back(id);
  }
  return ids;
}

// Random answers, each token of which a matcher of its own is told of at once; the path goes ahead
// by random tokens first, right ones and wrong ones.
TEST(AnswerPath, ComesBackToWhatTheAnswerHas) {
  const std::string ebnf =
      "root ::= \"{\" pair (\",\" pair)* \"}\"\npair ::= \"\\\"\" [a-n]+ \"\\\":\" (root | [0-9]+)";
  std::mt19937 random(5);
  const auto pick = [&](const Ids& ids) { return ids[random() % ids.size()]; };
  for (const std::optional<uint32_t> budget : {std::optional<uint32_t>(), std::optional(3u)}) {
    for (int answer = 0; answer < 20; ++answer) {
      const auto thought = answer % 2 == 0 ? std::optional(Thought(budget)) : std::nullopt;
      const auto alone = Matcher(ebnf, thought);
      AnswerPath path(Matcher(ebnf, thought));
      Ids untold;
      Ids ahead;  // Where the path is, behind what it was told.
      for (int tokens = 0; tokens < 60; ++tokens) {
        const auto expected = alone->Next();
        ASSERT_TRUE(expected.ok()) << expected.status();
        if (expected->complete) break;
        ASSERT_TRUE(path.GoTo(untold, {}).ok());
        untold.clear();
        const auto here = path.Next();
        ASSERT_TRUE(here.ok());
        ASSERT_EQ(here->words, expected->words);
        // Some tokens ahead.
        std::vector<uint32_t> words = here->words;
        Ids gone;
        for (uint32_t i = random() % 5; i > 0; --i) {
          const uint32_t token = pick(IdsOf(words));
          const std::optional<AnswerMask> behind = path.TryNext(token);
          if (!behind.has_value()) break;
          EXPECT_FALSE(behind->complete);
          gone.push_back(token);
          words = behind->words;
        }
        // The answer takes some of them, or others.
        const size_t right = gone.empty() ? 0 : random() % (gone.size() + 1);
        for (size_t i = 0; i <= right; ++i) {
          const auto next = alone->Next();
          ASSERT_TRUE(next.ok());
          if (next->complete) break;
          Ids ids = IdsOf(next->words);
          ids.erase(std::remove(ids.begin(), ids.end(), kStop), ids.end());
          const uint32_t token = i < right ? gone[i] : pick(ids);
          ASSERT_TRUE(MaskHas(next->words, token));
          ASSERT_TRUE(alone->Take(token).ok());
          untold.push_back(token);
        }
      }
    }
  }
}

TEST(AnswerPath, GoesFurtherFromWhereItIs) {
  AnswerPath path(Matcher("root ::= \"abcd\" [ef] \"gh\""));
  ASSERT_TRUE(path.TryNext(Id("a")).has_value());
  ASSERT_TRUE(path.TryNext(Id("b")).has_value());
  // The answer has the first of them, and goes on ahead with the other.
  ASSERT_TRUE(path.GoTo(Ids{Id("a")}, Ids{Id("b")}).ok());
  ASSERT_TRUE(path.TryNext(Id("c")).has_value());
  EXPECT_FALSE(path.TryNext(Id("x")).has_value());
  ASSERT_TRUE(path.GoTo(Ids{Id("b"), Id("c"), Id("d")}, Ids{}).ok());
  EXPECT_EQ(IdsOf(path.Next()->words), (Ids{Id("e"), Id("f")}));
  EXPECT_FALSE(path.GoTo(Ids{Id("x")}, Ids{}).ok());
  EXPECT_FALSE(path.GoTo({}, {}).ok());  // It is nowhere any more.
}

TEST(AnswerPath, TriesNothingThatEndsTheAnswerOrBeginsAThought) {
  AnswerPath path(Matcher("root ::= \"ab\" | \"a\" [c-e]*"));
  ASSERT_TRUE(path.TryNext(Id("a")).has_value());
  EXPECT_FALSE(path.TryNext(kStop).has_value());
  EXPECT_FALSE(path.TryNext(Id("b")).has_value());  // Nothing may follow.
  EXPECT_TRUE(path.TryNext(Id("c")).has_value());
  ThoughtRule thought = Thought(std::nullopt);
  thought.opened = false;
  thought.open_ids = {Id("<"), Id("t")};
  AnswerPath opening(Matcher("root ::= [a-z<]+", thought));
  EXPECT_FALSE(opening.TryNext(Id("a")).has_value());
  ASSERT_TRUE(opening.GoTo(Ids{Id("a")}, {}).ok());
  EXPECT_TRUE(opening.TryNext(Id("b")).has_value());
}

std::optional<std::string> Forced(const Ids& ids, bool* only = nullptr) {
  std::vector<uint32_t> words(MaskWords(static_cast<uint32_t>(Tokens().size())), 0);
  for (const uint32_t id : ids) words[id / 32] |= uint32_t{1} << (id % 32);
  const auto forced = ForcedTokenOf(words, *Vocabulary());
  if (forced.has_value() && only != nullptr) *only = forced->only;
  return forced.has_value() ? std::optional(Tokens()[forced->id]) : std::nullopt;
}

TEST(ForcedToken, IsTheLongestThatNoOtherTokenSpeaksAgainst) {
  bool only = true;
  EXPECT_EQ(Forced({Id("n"), Id("na"), Id("name")}, &only), "name");
  EXPECT_FALSE(only);
  EXPECT_EQ(Forced({Id("name")}, &only), "name");
  EXPECT_TRUE(only);
  // What all begin with, where they go on in several ways.
  EXPECT_EQ(Forced({Id("\""), Id("\"n"), Id("\":")}), "\"");
  EXPECT_EQ(Forced({Id("\"n"), Id("\":")}), std::nullopt);  // No token is that alone.
  EXPECT_EQ(Forced({Id("a"), Id("b")}), std::nullopt);
  EXPECT_EQ(Forced({}), std::nullopt);
  EXPECT_EQ(Forced({kClose}, &only), "");
  EXPECT_TRUE(only);
  // The answer may end.
  EXPECT_EQ(Forced({kStop}), std::nullopt);
  EXPECT_EQ(Forced({Id("a"), kStop}), std::nullopt);
}

}  // namespace
}  // namespace strata
