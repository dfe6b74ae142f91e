// Thoughts before held text, token by token.
#include "text/masks/answer_matcher.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "gtest/gtest.h"

namespace strata {
namespace {

// Characters, a few longer tokens, and special ones without bytes.
const std::vector<std::string>& Tokens() {
  static const auto& tokens = *[] {
    auto* made = new std::vector<std::string>;
    for (char c = ' '; c < 127; ++c) made->emplace_back(1, c);
    for (const char* token :
         {"</", "</th", "ink>", "ink>\n", "</think>", "</think>a", "\n", "ab"}) {
      made->emplace_back(token);
    }
    made->emplace_back("");  // Ends an answer.
    made->emplace_back("");  // Begins a thought.
    made->emplace_back("");  // Ends one.
    for (const char* name : {"<|channel|>", "<|message|>", "<|end|>", "<|start|>"}) {
      made->push_back(kSpecialTokenByte + std::string(name));
    }
    return made;
  }();
  return tokens;
}
const auto kStop = static_cast<uint32_t>(Tokens().size() - 7);
const uint32_t kOpen = kStop + 1;
const uint32_t kClose = kStop + 2;
const uint32_t kChannel = kStop + 3;
const uint32_t kMessage = kStop + 4;
const uint32_t kEnd = kStop + 5;
const uint32_t kStart = kStop + 6;

uint32_t Id(const std::string& token) {
  return static_cast<uint32_t>(std::find(Tokens().begin(), Tokens().end(), token) -
                               Tokens().begin());
}

std::shared_ptr<const MaskVocabulary> Vocabulary() {
  static const auto& made =
      *new std::shared_ptr<const MaskVocabulary>(*MaskVocabulary::Make(Tokens(), {int32_t(kStop)}));
  return made;
}

struct Held {
  std::string ebnf = "";  // Empty: any text.
  std::optional<ThoughtRule> thought = std::nullopt;
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
};

std::unique_ptr<AnswerMatcher> Matcher(const Held& rule, bool blanks = false) {
  auto plan = std::make_shared<AnswerPlan>();
  plan->rule = {rule.thought, rule.min_tokens, rule.ignore_eos};
  plan->vocabulary = Vocabulary();
  if (blanks) {
    plan->blanks = BlankTokens(Tokens());
  }
  if (!rule.ebnf.empty()) {
    plan->grammar = *CompiledGrammar::Compile(rule.ebnf, plan->vocabulary->compiled);
  }
  if (rule.thought.has_value() && !rule.thought->close_token.has_value()) {
    plan->thought_end = std::make_shared<const ThoughtEnd>(rule.thought->close, Tokens());
  }
  return *AnswerMatcher::Make(std::move(plan));
}

// What may come next, as tokens, the one that ends it being "STOP"; nullopt: any.
std::optional<std::vector<uint32_t>> NextIds(AnswerMatcher* matcher) {
  const auto mask = matcher->Next();
  EXPECT_TRUE(mask.ok()) << mask.status();
  if (mask->words.empty()) return std::nullopt;
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < Tokens().size(); ++id) {
    if ((mask->words[id / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
  }
  return ids;
}

bool May(AnswerMatcher* matcher, uint32_t id) {
  const auto ids = NextIds(matcher);
  return !ids.has_value() || std::find(ids->begin(), ids->end(), id) != ids->end();
}

void TakeAll(AnswerMatcher* matcher, const std::vector<uint32_t>& ids) {
  for (const uint32_t id : ids) {
    EXPECT_TRUE(May(matcher, id)) << id;
    EXPECT_TRUE(matcher->Take(id).ok()) << id;
  }
}

using Ids = std::vector<uint32_t>;

TEST(AnswerMatcher, HoldsATextAndSaysWhereItIsComplete) {
  auto matcher = Matcher({.ebnf = "root ::= \"a\" \"b\"?"});
  EXPECT_EQ(NextIds(matcher.get()), (Ids{Id("a"), Id("ab")}));
  TakeAll(matcher.get(), {Id("a")});
  EXPECT_EQ(NextIds(matcher.get()), (Ids{Id("b"), kStop}));
  EXPECT_FALSE(matcher->Next()->complete);
  TakeAll(matcher.get(), {Id("b")});
  EXPECT_TRUE(matcher->Next()->complete);
  EXPECT_EQ(ReasonOf(matcher->Take(Id("b"))), "MASK_FAILED");
}

TEST(AnswerMatcher, EndsNothingAsLongAsItMayNotAndSomethingElseMayCome) {
  auto least = Matcher({.ebnf = "root ::= \"a\"*", .min_tokens = 2});
  TakeAll(least.get(), {Id("a")});
  EXPECT_FALSE(May(least.get(), kStop));
  TakeAll(least.get(), {Id("a")});
  EXPECT_TRUE(May(least.get(), kStop));
  auto never = Matcher({.ebnf = "root ::= \"a\"{1,3}", .ignore_eos = true});
  TakeAll(never.get(), {Id("a"), Id("a")});
  EXPECT_FALSE(May(never.get(), kStop));
  TakeAll(never.get(), {Id("a")});
  EXPECT_TRUE(never->Next()->complete);
}

TEST(AnswerMatcher, IsStuckWhereNoTokenGoesOn) {
  auto matcher = Matcher({.ebnf = "root ::= \"a\" \"\\u00e9\""});
  TakeAll(matcher.get(), {Id("a")});
  EXPECT_EQ(ReasonOf(matcher->Next().status()), "CONSTRAINT_STUCK");
}

ThoughtRule Spelled() {
  return {.close = "</think>", .close_ids = {Id("</think>")}, .opened = true, .open_ids = {kOpen}};
}
ThoughtRule Special() {
  ThoughtRule rule = Spelled();
  rule.close_token = kClose;
  rule.close_ids = {kClose};
  return rule;
}

TEST(AnswerMatcher, AThoughtIsFreeAndCannotEndTheAnswer) {
  for (const ThoughtRule& rule : {Spelled(), Special()}) {
    auto matcher = Matcher({.ebnf = "root ::= \"a\"", .thought = rule});
    for (int i = 0; i < 20; ++i) {
      TakeAll(matcher.get(), {Id("x"), Id("ab"), Id("<")});
      EXPECT_FALSE(May(matcher.get(), kStop));
    }
    TakeAll(matcher.get(), {rule.close_ids[0]});
    EXPECT_EQ(NextIds(matcher.get()), Ids{Id("a")});
    TakeAll(matcher.get(), {Id("a")});
    EXPECT_TRUE(matcher->Next()->complete);
  }
}

// However the end is cut into tokens, the text begins with the token behind it.
TEST(AnswerMatcher, AThoughtEndsAtATokenOnly) {
  const std::vector<Ids> ends = {{Id("</think>")},
                                 {Id("</th"), Id("ink>")},
                                 {Id("<"), Id("/"), Id("t"), Id("h"), Id("ink>")},
                                 {Id("<"), Id("</"), Id("t"), Id("h"), Id("ink>")},
                                 {Id("</th"), Id("</th"), Id("ink>")}};
  for (const Ids& end : ends) {
    auto matcher = Matcher({.ebnf = "root ::= \"a\"", .thought = Spelled()});
    EXPECT_FALSE(May(matcher.get(), Id("</think>a")));
    EXPECT_TRUE(May(matcher.get(), Id("ink>\n")));
    for (const uint32_t id : end) {
      EXPECT_TRUE(May(matcher.get(), id));
      EXPECT_TRUE(May(matcher.get(), Id("x")));
      EXPECT_TRUE(matcher->Take(id).ok());
    }
    EXPECT_EQ(NextIds(matcher.get()), Ids{Id("a")});
  }
  auto matcher = Matcher({.ebnf = "root ::= \"a\"", .thought = Spelled()});
  TakeAll(matcher.get(), {Id("</th")});
  EXPECT_FALSE(May(matcher.get(), Id("ink>\n")));
}

TEST(AnswerMatcher, SomeBlanksMayComeBehindAThought) {
  auto matcher = Matcher({.ebnf = "root ::= \"a\"", .thought = Special()}, /*blanks=*/true);
  TakeAll(matcher.get(), {Id("x"), kClose, Id("\n"), Id(" "), Id("\n")});
  EXPECT_EQ(NextIds(matcher.get()), (Ids{Id(" "), Id("a"), Id("\n")}));
  TakeAll(matcher.get(), {Id("\n")});
  EXPECT_EQ(NextIds(matcher.get()), Ids{Id("a")});
  // Not where there is no thought.
  ThoughtRule rule = Special();
  rule.opened = false;
  auto says = Matcher({.ebnf = "root ::= \"a\"", .thought = rule}, /*blanks=*/true);
  EXPECT_EQ(NextIds(says.get()), (Ids{Id("a"), kOpen}));
}

TEST(AnswerMatcher, ASpelledEndIsNoneWhereItIsASpecialToken) {
  auto matcher = Matcher({.ebnf = "root ::= \"a\"", .thought = Special()});
  TakeAll(matcher.get(), {Id("</think>"), Id("</think>a"), Id("x"), kClose});
  EXPECT_EQ(NextIds(matcher.get()), Ids{Id("a")});
}

TEST(AnswerMatcher, ABudgetForcesTheEnd) {
  for (const uint32_t budget : {0u, 1u, 5u}) {
    ThoughtRule rule = Special();
    rule.budget_tokens = budget;
    rule.close_ids = {Id("\n"), kClose};
    auto matcher = Matcher({.ebnf = "root ::= \"a\"", .thought = rule});
    for (uint32_t i = 0; i < budget; ++i) {
      EXPECT_GT(NextIds(matcher.get())->size(), 50u);
      TakeAll(matcher.get(), {Id("x")});
    }
    EXPECT_EQ(NextIds(matcher.get()), Ids{Id("\n")});
    EXPECT_EQ(ReasonOf(matcher->Take(Id("x"))), "MASK_FAILED");
    TakeAll(matcher.get(), {Id("\n")});
    EXPECT_EQ(NextIds(matcher.get()), Ids{kClose});
    TakeAll(matcher.get(), {kClose});
    EXPECT_EQ(NextIds(matcher.get()), Ids{Id("a")});
  }
}

TEST(AnswerMatcher, AnAnswerMayBeginWithAThought) {
  ThoughtRule rule = Special();
  rule.opened = false;
  auto thinks = Matcher({.ebnf = "root ::= \"ab\"", .thought = rule});
  EXPECT_EQ(NextIds(thinks.get()), (Ids{Id("a"), Id("ab"), kOpen}));
  TakeAll(thinks.get(), {kOpen, Id("x"), kClose, Id("ab")});
  EXPECT_TRUE(thinks->Next()->complete);
  auto says = Matcher({.ebnf = "root ::= \"ab\"", .thought = rule});
  TakeAll(says.get(), {Id("a")});
  EXPECT_EQ(NextIds(says.get()), Ids{Id("b")});
  rule.budget_tokens = 0;
  auto never = Matcher({.ebnf = "root ::= \"ab\"", .thought = rule});
  EXPECT_EQ(NextIds(never.get()), (Ids{Id("a"), Id("ab")}));
}

TEST(AnswerMatcher, ABudgetOfNothingEndsAThoughtThatTheAnswerBegins) {
  ThoughtRule rule = Special();
  rule.opened = false;
  rule.budget_tokens = 0;
  for (const Ids& before : {Ids{}, Ids{Id("\n"), Id(" ")}}) {
    auto thinks = Matcher({.thought = rule}, /*blanks=*/true);
    TakeAll(thinks.get(), before);
    TakeAll(thinks.get(), {kOpen});
    EXPECT_EQ(NextIds(thinks.get()), Ids{kClose});
    TakeAll(thinks.get(), {kClose});
    EXPECT_EQ(NextIds(thinks.get()), std::nullopt);
  }
}

// A channel's message, as gpt-oss has it, with short names: "t" for thoughts, "f" for the text.
ThoughtRule Channel() {
  return {.close = "<|end|>",
          .close_token = kEnd,
          .close_ids = {kEnd, kStart, Id("a")},
          .open_ids = {kChannel, Id("t"), kMessage},
          .barred_ids = {kChannel, kMessage, kStart},
          .blanks_behind = false};
}
std::string FinalMessage(const std::string& text) {
  return "root ::= Token(" + std::to_string(kChannel) + ") \"f\" Token(" +
         std::to_string(kMessage) + ") \"" + text + "\"";
}

TEST(AnswerMatcher, AThoughtAndTheTextMayBeginAlike) {
  const Held held{.ebnf = FinalMessage("x"), .thought = Channel()};
  auto thinks = Matcher(held, /*blanks=*/true);
  EXPECT_EQ(NextIds(thinks.get()), Ids{kChannel});
  TakeAll(thinks.get(), {kChannel});
  EXPECT_EQ(NextIds(thinks.get()), (Ids{Id("f"), Id("t")}));
  TakeAll(thinks.get(), {Id("t")});
  EXPECT_EQ(NextIds(thinks.get()), Ids{kMessage});
  TakeAll(thinks.get(), {kMessage, Id("h"), Id("\n")});
  for (const uint32_t barred : {kStop, kChannel, kMessage, kStart}) {
    EXPECT_FALSE(May(thinks.get(), barred)) << barred;
  }
  TakeAll(thinks.get(), {kEnd});
  // The next message's header is forced, then the text begins anew, without blanks before it.
  for (const uint32_t next : {kStart, Id("a"), kChannel, Id("f"), kMessage, Id("x")}) {
    EXPECT_EQ(NextIds(thinks.get()), Ids{next});
    TakeAll(thinks.get(), {next});
  }
  EXPECT_TRUE(thinks->Next()->complete);
  auto says = Matcher(held);
  TakeAll(says.get(), {kChannel, Id("f"), kMessage, Id("x")});
  EXPECT_TRUE(says->Next()->complete);
  auto neither = Matcher(held);
  TakeAll(neither.get(), {kChannel});
  EXPECT_EQ(ReasonOf(neither->Take(Id("a"))), "MASK_FAILED");
}

TEST(AnswerMatcher, ABudgetForcesTheEndOfAChannelsMessageAndNoneBarsIt) {
  ThoughtRule rule = Channel();
  rule.budget_tokens = 2;
  auto thinks = Matcher({.ebnf = FinalMessage("x"), .thought = rule});
  TakeAll(thinks.get(), {kChannel, Id("t"), kMessage, Id("h"), Id("m")});
  EXPECT_EQ(NextIds(thinks.get()), Ids{kEnd});
  TakeAll(thinks.get(), {kEnd, kStart, Id("a"), kChannel});
  EXPECT_EQ(NextIds(thinks.get()), Ids{Id("f")});
  // Where any text may come, what follows its end is the model's own, unless that was forced.
  auto free = Matcher({.thought = rule});
  TakeAll(free.get(), {kChannel, Id("t"), kMessage, Id("h"), kEnd});
  EXPECT_EQ(NextIds(free.get()), std::nullopt);
  rule.budget_tokens = 0;
  auto never = Matcher({.ebnf = FinalMessage("x"), .thought = rule});
  TakeAll(never.get(), {kChannel});
  EXPECT_EQ(NextIds(never.get()), Ids{Id("f")});
}

TEST(AnswerMatcher, RefusesThoughtsWhoseTokensTheModelCannotSay) {
  const auto beyond = static_cast<uint32_t>(Tokens().size());
  for (const bool opens : {true, false}) {
    ThoughtRule rule = Special();
    (opens ? rule.open_ids : rule.close_ids) = {beyond};
    auto plan = std::make_shared<AnswerPlan>();
    plan->rule.thought = rule;
    plan->vocabulary = Vocabulary();
    EXPECT_EQ(ReasonOf(AnswerMatcher::Make(std::move(plan)).status()), "NOT_SUPPORTED");
  }
}

TEST(AnswerMatcher, ABudgetAloneLeavesTheTextFree) {
  ThoughtRule rule = Special();
  rule.opened = false;
  rule.budget_tokens = 2;
  auto thinks = Matcher({.thought = rule});
  EXPECT_EQ(NextIds(thinks.get()), std::nullopt);
  TakeAll(thinks.get(), {kOpen, Id("x"), Id("y"), kClose});
  EXPECT_EQ(NextIds(thinks.get()), std::nullopt);
  auto says = Matcher({.thought = rule});
  TakeAll(says.get(), {Id("a"), kOpen, Id("x"), Id("y"), Id("z")});
  EXPECT_EQ(NextIds(says.get()), std::nullopt);
}

}  // namespace
}  // namespace strata
