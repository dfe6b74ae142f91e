#include "text/tokenizer/bpe_model.h"

#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<uint32_t>;
using Merges = std::vector<std::pair<std::string, std::string>>;

const std::string kMark = "\xE2\x96\x81";

// Tokens get ids in their order, merges ranks in theirs.
std::unique_ptr<BpeModel> Model(const std::vector<std::string>& tokens, const Merges& merges,
                                BpeOptions options = {}) {
  std::vector<std::pair<std::string, uint64_t>> numbered;
  for (const std::string& token : tokens) {
    numbered.emplace_back(token, numbered.size());
  }
  auto vocabulary = Vocabulary::Make(std::move(numbered));
  EXPECT_TRUE(vocabulary.ok());
  auto model = BpeModel::Make(*std::move(vocabulary), merges, std::move(options));
  EXPECT_TRUE(model.ok()) << Describe(model.status());
  return *std::move(model);
}

Ids IdsOf(const BpeModel& model, const std::string& piece) {
  Ids ids;
  const TextRange whole{0, static_cast<uint32_t>(piece.size())};
  EXPECT_TRUE(model.Tokenize(piece, {&whole, 1}, SIZE_MAX, &ids).ok());
  return ids;
}

TEST(BpeModel, LooksAtNoMorePairsOfAMegabyteThanOfAWordForEachCharacter) {
  // Names every length of a run of "a" up to 64, so that merges pile up on merges.
  std::vector<std::string> tokens = {"a", "b"};
  Merges merges;
  for (size_t n = 2; n <= 64; n *= 2) {
    tokens.push_back(std::string(n, 'a'));
    merges.emplace_back(std::string(n / 2, 'a'), std::string(n / 2, 'a'));
  }
  const auto model = Model(tokens, merges);
  EXPECT_LE(model->CountLookups(std::string(1 << 10, 'a')), 5u << 10);
  EXPECT_LE(model->CountLookups(std::string(1 << 20, 'a')), 5u << 20);
  EXPECT_EQ(IdsOf(*model, std::string(1 << 20, 'a')).size(), (1u << 20) / 64);
}

TEST(BpeModel, ATextWithoutPreTokenizerIsMergedByWordsOnlyWhereThatIsTheSame) {
  // "b▁" is a token: what is left of a mark is joined to it, in spite of the word that it begins.
  const Merges merges = {{"b", kMark}, {kMark, "a"}, {kMark, kMark}, {"a", "b"}};
  const auto model =
      Model({"a", "b", kMark, "b" + kMark, kMark + "a", kMark + kMark, "ab"}, merges);
  EXPECT_THAT(IdsOf(*model, "ab" + kMark + "a"), ElementsAre(0, 3, 0));
  EXPECT_THAT(IdsOf(*model, "a" + kMark + "ab"), ElementsAre(0, 4, 1));
  EXPECT_THAT(IdsOf(*model, "a" + kMark + kMark + kMark + "a"), ElementsAre(0, 5, 4));
}

TEST(BpeModel, BytesOfACharacterGoBeforeAnUnknownOneThatIsStillOpen) {
  BpeOptions options;
  options.byte_fallback = true;
  options.unknown_token = "?";
  options.fuse_unknown = true;
  const auto model = Model({"a", "?", "<0x62>"}, {}, options);
  EXPECT_THAT(IdsOf(*model, "xyba"), ElementsAre(2, 1, 0));  // As Hugging Face's library does.
  EXPECT_THAT(IdsOf(*model, "xaby"), ElementsAre(1, 0, 2, 1));
}

}  // namespace
}  // namespace strata
