// Masks go over the wire in the shortest form, and what comes is looked at before it is believed.
#include "common/token_mask_form.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/random.h"

namespace strata {
namespace {

std::vector<uint32_t> WordsOf(uint32_t vocab, uint64_t seed, double share) {
  std::vector<uint32_t> words(MaskWords(vocab), 0);
  for (uint32_t id = 0; id < vocab; ++id) {
    if (UniformDouble(Philox(seed, 0, id)) < share) {
      words[id / 32] |= uint32_t{1} << (id % 32);
    }
  }
  return words;
}

v1::TokenMask Named(const std::vector<uint32_t>& words, uint32_t vocab) {
  v1::TokenMask mask = EncodeTokenMask(words, vocab);
  mask.mutable_name()->set_digest(TokenMaskDigest(words));
  return mask;
}

TEST(TokenMaskForm, GivesBackWhatItWasMadeOf) {
  for (const uint32_t vocab : {1u, 7u, 31u, 32u, 33u, 300u, 20'000u}) {
    for (const double share : {0.0, 0.001, 0.02, 0.5, 0.98, 0.999, 1.0}) {
      const auto words = WordsOf(vocab, 7, share);
      const auto read = DecodeTokenMask(Named(words, vocab), vocab);
      ASSERT_TRUE(read.has_value()) << vocab << " " << share;
      EXPECT_EQ(*read, words) << vocab << " " << share;
    }
  }
}

TEST(TokenMaskForm, FewAndNearlyAllAreShort) {
  constexpr uint32_t kVocab = 128'000;
  EXPECT_TRUE(Named(WordsOf(kVocab, 1, 0.0005), kVocab).has_allowed());
  EXPECT_TRUE(Named(WordsOf(kVocab, 1, 0.9995), kVocab).has_barred());
  EXPECT_LT(Named(WordsOf(kVocab, 1, 0.9995), kVocab).ByteSizeLong(), 300u);
  EXPECT_EQ(Named(WordsOf(kVocab, 1, 0.5), kVocab).bits().size(), 16'000u);
}

TEST(TokenMaskForm, OtherWordsHaveAnotherDigest) {
  const std::vector<uint32_t> words = {1, 2, 3};
  EXPECT_EQ(TokenMaskDigest(words), TokenMaskDigest(std::vector<uint32_t>{1, 2, 3}));
  for (const std::vector<uint32_t>& other :
       {std::vector<uint32_t>{1, 2}, {1, 2, 3, 0}, {1, 3, 2}, {1, 2, 2}, {2, 1, 3}}) {
    EXPECT_NE(TokenMaskDigest(words), TokenMaskDigest(other));
  }
}

TEST(TokenMaskForm, RefusesWhatIsNoMaskOfTheVocabulary) {
  constexpr uint32_t kVocab = 100;
  const auto words = WordsOf(kVocab, 3, 0.5);
  const v1::TokenMask good = Named(words, kVocab);
  ASSERT_TRUE(DecodeTokenMask(good, kVocab).has_value());
  const auto refused = [&](auto change, uint32_t vocab = 100) {
    v1::TokenMask mask = good;
    change(&mask);
    return !DecodeTokenMask(mask, vocab).has_value();
  };
  EXPECT_TRUE(refused([](v1::TokenMask* m) { m->mutable_name()->set_digest(1); }));
  EXPECT_TRUE(refused([](v1::TokenMask* m) { m->clear_bits(); }));
  EXPECT_TRUE(refused([](v1::TokenMask* m) { m->mutable_allowed()->add_gaps(1); }));
  EXPECT_TRUE(refused([](v1::TokenMask* m) { m->mutable_bits()->append("a"); }));
  EXPECT_TRUE(refused([](v1::TokenMask* m) { m->mutable_bits()->back() = '\x7f'; }));
  EXPECT_TRUE(refused([](v1::TokenMask*) {}, 105));
  for (const std::vector<uint32_t>& gaps :
       {std::vector<uint32_t>{100}, {1, 0}, {50, 50}, {1, 0xFFFFFFFF}}) {
    v1::TokenMask mask;
    mask.mutable_allowed()->mutable_gaps()->Add(gaps.begin(), gaps.end());
    mask.mutable_name()->set_digest(good.name().digest());
    EXPECT_FALSE(DecodeTokenMask(mask, kVocab).has_value());
  }
}

}  // namespace
}  // namespace strata
