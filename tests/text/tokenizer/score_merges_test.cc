#include "text/tokenizer/score_merges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "common/status.h"

namespace strata {
namespace {

Vocabulary VocabularyOf(const std::vector<std::string>& tokens) {
  std::vector<std::pair<std::string, uint64_t>> numbered;
  for (const std::string& token : tokens) {
    numbered.emplace_back(token, numbered.size());
  }
  auto vocabulary = Vocabulary::Make(std::move(numbered));
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return *std::move(vocabulary);
}

// Pairs of what was there, a few characters long.
std::vector<std::string> MadeTokens(size_t count) {
  std::vector<std::string> tokens;
  for (char c = 'a'; c <= 'z'; ++c) tokens.push_back(std::string(1, c));
  tokens.insert(tokens.end(), {"\u2581", "\u00e9", "\u4e2d", "\U0001f600"});
  std::set<std::string> seen(tokens.begin(), tokens.end());
  std::mt19937_64 random(20261128);
  while (tokens.size() < count) {
    const std::string made =
        tokens[random() % tokens.size()] + tokens[random() % 1000 % tokens.size()];
    if (made.size() <= 16 && seen.insert(made).second) tokens.push_back(made);
  }
  return tokens;
}

TEST(ScoreMerges, AreThoseOfEveryCutIntoTwoTokens) {
  const std::vector<std::string> tokens = MadeTokens(3000);
  const Vocabulary vocabulary = VocabularyOf(tokens);
  std::vector<float> scores;
  std::vector<bool> merged;
  std::mt19937_64 random(7);
  for (size_t id = 0; id < tokens.size(); ++id) {
    scores.push_back(-static_cast<float>(random() % 40));  // Many alike.
    merged.push_back(random() % 8 != 0);
  }
  const auto characters = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  };
  std::vector<std::tuple<float, long, long, long, std::string, std::string>> wanted;
  for (size_t id = 0; id < tokens.size(); ++id) {
    for (size_t cut = 1; merged[id] && cut < tokens[id].size(); ++cut) {
      const std::string left = tokens[id].substr(0, cut), right = tokens[id].substr(cut);
      if ((right[0] & 0xc0) != 0x80 && vocabulary.IdOf(left) && vocabulary.IdOf(right)) {
        wanted.emplace_back(-scores[id], -characters(left), -characters(right),
                            static_cast<long>(id), left, right);
      }
    }
  }
  std::sort(wanted.begin(), wanted.end());
  const auto merges = MergesOfScores(vocabulary, scores, merged);
  ASSERT_TRUE(merges.ok()) << merges.status();
  ASSERT_EQ(merges->size(), wanted.size());
  EXPECT_GT(merges->size(), tokens.size() / 2);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const BpeMerge& merge = (*merges)[i];
    const auto& [score, left_size, right_size, id, left, right] = wanted[i];
    ASSERT_EQ(std::tuple(tokens[merge.left], tokens[merge.right], merge.made),
              std::tuple(left, right, static_cast<uint32_t>(id)))
        << i;
  }
}

TEST(ScoreMerges, StepsGrowAsTheVocabularyDoes) {
  uint64_t before = 0;
  for (const size_t count : {2000, 8000, 32000}) {
    const std::vector<std::string> tokens = MadeTokens(count);
    const Vocabulary vocabulary = VocabularyOf(tokens);
    uint64_t characters = 0;
    for (const std::string& token : tokens) characters += token.size();
    ScoreMergeSteps steps;
    const auto merges = MergesOfScores(vocabulary, std::vector<float>(count, -1.0f),
                                       std::vector<bool>(count, true), &steps);
    ASSERT_TRUE(merges.ok()) << merges.status();
    EXPECT_LE(steps.cuts, characters);
    // What is looked up is a merge, but for a few.
    EXPECT_LE(steps.bytes, 16 * (merges->size() + count));
    if (before != 0) {
      EXPECT_LE(steps.bytes, 6 * before);
    }
    before = steps.bytes;
  }
}

TEST(ScoreMerges, ALongTokenIsNotLookedUpAtEachOfItsCuts) {
  std::vector<std::string> tokens = {"a", "b", std::string(1 << 20, 'a')};
  tokens[2][1 << 19] = 'b';
  ScoreMergeSteps steps;
  const auto merges =
      MergesOfScores(VocabularyOf(tokens), std::vector<float>(3, 0.0f), {true, true, true}, &steps);
  ASSERT_TRUE(merges.ok()) << merges.status();
  EXPECT_TRUE(merges->empty());
  EXPECT_EQ(steps.cuts, (1u << 20) - 1);
  EXPECT_LE(steps.bytes, uint64_t{16} << 20);
}

TEST(ScoreMerges, TokensThatAreMadeOfTooManyOthersAreRefused) {
  // All lengths of one letter: the square of their number of merges, and its cube of bytes.
  std::vector<std::string> tokens;
  for (size_t n = 1; n <= 1200; ++n) tokens.push_back(std::string(n, 'a'));
  const auto merges = MergesOfScores(VocabularyOf(tokens), std::vector<float>(1200, 0.0f),
                                     std::vector<bool>(1200, true));
  EXPECT_EQ(ReasonOf(merges.status()), "TOKENIZER_TOO_LARGE");
}

}  // namespace
}  // namespace strata
