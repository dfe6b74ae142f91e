// Masks of XGrammar under grammars of ours, against the recognizer, which knows nothing of it.
#include "text/grammar/token_mask.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "gtest/gtest.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

// Every character of ASCII, some longer tokens, and one that ends.
std::vector<std::string> Tokens() {
  std::vector<std::string> tokens;
  for (char c = '\0'; c >= 0 && c < 127; ++c) {
    tokens.emplace_back(1, c);
  }
  for (const char* const token :
       {"{\"", "\":", "\",\"", ", ",       "}}", "\"}", "\\u00", "\\n",  "tru",  "null", "12",
        ".0",  "e1",  "abc",   "\xC3\xA9", "[[", "]]",  "  ",    "\\\"", "name", "-1"}) {
    tokens.emplace_back(token);
  }
  tokens.emplace_back("");
  return tokens;
}

class TokenMaskTest : public ::testing::Test {
 protected:
  TokenMaskTest() : tokens_(Tokens()), stop_(static_cast<int32_t>(tokens_.size() - 1)) {
    vocabulary_ = *TokenVocabulary::Make(tokens_, {stop_});
  }

  std::vector<bool> Mask(TokenMatcher* matcher) {
    std::vector<uint32_t> words(vocabulary_->mask_words());
    EXPECT_TRUE(matcher->FillMask(words).ok());
    std::vector<bool> mask(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) {
      mask[i] = (words[i / 32] >> (i % 32) & 1) != 0;
    }
    return mask;
  }

  std::vector<std::string> tokens_;
  int32_t stop_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
};

TEST_F(TokenMaskTest, AllowsTheTokensThatTheGrammarHas) {
  const std::vector<std::string> schemas = {
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3},
          "abc": {"enum": ["\"", 12, 0.1, null]}, "n": {"type": "integer", "minimum": -11, "maximum": 12}},
          "required": ["abc"], "additionalProperties": false})",
      R"({"type": "array", "items": {"type": "string", "pattern": "^[a-c]+\"?$"}, "maxItems": 3})",
      R"({"properties": {"abc": {"$ref": "#"}}, "additionalProperties": {"type": "boolean"}})",
      R"({"type": "string", "minLength": 1})",
      R"({"type": ["number", "null"], "minimum": -1.5})",
      R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string", "maxLength": 70}}]})"};
  uint64_t random = 1;
  for (const std::string& schema : schemas) {
    const absl::StatusOr<Grammar> grammar = GrammarOfSchema(schema, {});
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    const Recognizer recognizer = *Recognizer::Make(*grammar, 100'000);
    const auto compiled = CompiledGrammar::Compile(EbnfOf(*grammar), vocabulary_);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    for (int answer = 0; answer < 8; ++answer) {
      auto matcher = TokenMatcher::Make(*compiled);
      ASSERT_TRUE(matcher.ok()) << matcher.status();
      std::string text;
      for (int step = 0; step < 40; ++step) {
        const std::vector<bool> mask = Mask(matcher->get());
        std::vector<int32_t> allowed;
        for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
          const std::string longer = text + tokens_[i];
          EXPECT_EQ(mask[i], recognizer.Check(longer).prefix == longer.size())
              << schema << ": " << text << " and " << tokens_[i];
          if (mask[i]) {
            allowed.push_back(static_cast<int32_t>(i));
          }
        }
        const bool complete = recognizer.Check(text).complete;
        EXPECT_EQ((*matcher)->IsComplete(), complete) << schema << ": " << text;
        EXPECT_EQ(mask[static_cast<size_t>(stop_)], complete) << schema << ": " << text;
        if (allowed.empty()) {
          break;
        }
        random = random * 6364136223846793005U + 1442695040888963407U;
        const int32_t token = allowed[(random >> 33) % allowed.size()];
        const auto accepted = (*matcher)->Accept(token);
        ASSERT_TRUE(accepted.ok() && *accepted);
        text += tokens_[static_cast<size_t>(token)];
      }
    }
  }
}

TEST_F(TokenMaskTest, TakesTokensBack) {
  const auto compiled = CompiledGrammar::Compile("root ::= \"a\" [bc]{1,3} \"d\"\n", vocabulary_);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto matcher = *TokenMatcher::Make(*compiled);
  EXPECT_TRUE(*matcher->Accept('a'));
  const std::vector<bool> before = Mask(matcher.get());
  EXPECT_FALSE(*matcher->Accept('a'));
  EXPECT_TRUE(*matcher->Accept('b'));
  EXPECT_TRUE(*matcher->Accept('d'));
  EXPECT_TRUE(matcher->IsComplete());
  EXPECT_TRUE(*matcher->Accept(stop_));
  EXPECT_FALSE(*matcher->Accept('a'));
  EXPECT_TRUE(matcher->Rollback(3).ok());
  EXPECT_EQ(Mask(matcher.get()), before);
  EXPECT_FALSE(matcher->Rollback(5).ok());
}

TEST_F(TokenMaskTest, WhatIsSerializedGivesTheSameMasks) {
  const auto compiled = CompiledGrammar::Compile(
      EbnfOf(*GrammarOfSchema(R"({"type": "array", "items": {"type": "number", "minimum": 0.5}})",
                              {})),
      vocabulary_);
  ASSERT_TRUE(compiled.ok());
  const auto serialized = (*compiled)->Serialize();
  ASSERT_TRUE(serialized.ok());
  const auto read = CompiledGrammar::Deserialize(*serialized, vocabulary_);
  ASSERT_TRUE(read.ok()) << read.status();
  auto first = *TokenMatcher::Make(*compiled);
  auto second = *TokenMatcher::Make(*read);
  for (const char c : std::string("[ 0.7, 12 ]")) {
    EXPECT_EQ(Mask(first.get()), Mask(second.get()));
    EXPECT_TRUE(*first->Accept(c) && *second->Accept(c));
  }
}

// Special tokens are given bytes that no text has, so that only the grammar's Token(id) means them.
TEST_F(TokenMaskTest, ASpecialTokenComesWhereTheGrammarNamesItAndNowhereElse) {
  tokens_.push_back(kSpecialTokenByte + std::string("<call>"));
  tokens_.push_back(std::string(1, kSpecialTokenByte));
  const auto call = static_cast<int32_t>(tokens_.size() - 2);
  vocabulary_ = *TokenVocabulary::Make(tokens_, {stop_});
  Grammar grammar;
  grammar.SetBody(
      grammar.AddRule("root"),
      GrammarExpr::Sequence({GrammarExpr::Optional(GrammarExpr::Literal("\n")),
                             GrammarExpr::Token(static_cast<uint32_t>(call), "<call>"),
                             GrammarExpr::Repeat(GrammarExpr::Class(CharSet::All()), 0, 20),
                             GrammarExpr::Token(static_cast<uint32_t>(call), "<call>")}));
  const auto made = CompiledGrammar::Compile(EbnfOf(grammar), vocabulary_);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto compiled = CompiledGrammar::Deserialize(*(*made)->Serialize(), vocabulary_);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto matcher = *TokenMatcher::Make(*compiled);
  std::vector<bool> mask = Mask(matcher.get());
  EXPECT_EQ(std::count(mask.begin(), mask.end(), true), 2);
  EXPECT_TRUE(mask[static_cast<size_t>(call)] && mask['\n']);
  EXPECT_FALSE(*matcher->Accept('<'));
  EXPECT_TRUE(*matcher->Accept('\n'));
  EXPECT_TRUE(*matcher->Accept(call));
  mask = Mask(matcher.get());
  EXPECT_TRUE(mask[static_cast<size_t>(call)] && mask['<'] && mask['\n']);
  EXPECT_FALSE(mask[static_cast<size_t>(call) + 1]) << "half of it";
  for (const char c : std::string("<call>")) {
    EXPECT_TRUE(*matcher->Accept(c));
  }
  EXPECT_FALSE(matcher->IsComplete());
  EXPECT_TRUE(*matcher->Accept(call));
  EXPECT_TRUE(matcher->IsComplete());
  mask = Mask(matcher.get());
  EXPECT_EQ(std::count(mask.begin(), mask.end(), true), 1);
  EXPECT_TRUE(mask[static_cast<size_t>(stop_)]);
  EXPECT_TRUE(matcher->Rollback(8).ok());
  EXPECT_TRUE(*matcher->Accept(call));
}

TEST_F(TokenMaskTest, WhatIsNoGrammarIsRefused) {
  EXPECT_EQ(ReasonOf(CompiledGrammar::Compile("root ::= nowhere", vocabulary_).status()),
            "GRAMMAR_INVALID");
  EXPECT_EQ(ReasonOf(CompiledGrammar::Deserialize("{}", vocabulary_).status()), "GRAMMAR_INVALID");
  EXPECT_EQ(ReasonOf(TokenVocabulary::Make({"a"}, {1}).status()), "INVALID_VOCABULARY");
}

}  // namespace
}  // namespace strata
