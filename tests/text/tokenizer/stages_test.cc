// Normalizers, pre-tokenizers and decoders beside the byte-level ones, each by what it does alone.
#include <string>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/stage_parsers.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using Strings = std::vector<std::string>;

// As they are in the library's own words: "_" stands for the usual U+2581.
Json Metaspace(const char* scheme, bool split = true) {
  return {
      {"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", scheme}, {"split", split}};
}
Json Replace(const Json& pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}
Json Sequence(const char* key, std::vector<Json> parts) {
  return {{"type", "Sequence"}, {key, std::move(parts)}};
}

NormalizedText Normalized(const Json& stage, const std::string& text) {
  const auto normalizer = ParseNormalizer(stage);
  EXPECT_TRUE(normalizer.ok()) << Describe(normalizer.status());
  NormalizedText out{text, /*at_start=*/true};
  EXPECT_TRUE((*normalizer)->Apply(&out).ok());
  return out;
}

Strings Cut(const Json& stage, const std::string& text, bool at_start = true) {
  const auto pre_tokenizer = ParsePreTokenizer(stage);
  EXPECT_TRUE(pre_tokenizer.ok()) << Describe(pre_tokenizer.status());
  PreTokenized cut{text, {{0, static_cast<uint32_t>(text.size())}}, at_start};
  EXPECT_TRUE((*pre_tokenizer)->Apply(&cut).ok());
  Strings pieces;
  for (const TextRange& piece : cut.pieces) {
    pieces.emplace_back(piece.Of(cut.text));
  }
  return pieces;
}

Decoder DecoderOf(const Json& stage) {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  const absl::Status status = ParseDecoder(stage, &steps);
  EXPECT_TRUE(status.ok()) << Describe(status);
  return Decoder(std::move(steps));
}

std::string Whole(const Json& stage, const Strings& tokens) {
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  return DecoderOf(stage).Decode(views);
}

// What a stream says after each token and at the end.
Strings Streamed(const Json& stage, const Strings& tokens) {
  const Decoder decoder = DecoderOf(stage);
  const auto stream = decoder.NewStream();
  Strings said;
  for (const std::string& token : tokens) {
    stream->Add(token, &said.emplace_back());
  }
  stream->Finish(&said.emplace_back());
  return said;
}

TEST(Normalizers, PrependLeavesEmptyTextAlone) {
  const Json prepend = {{"type", "Prepend"}, {"prepend", "_"}};
  EXPECT_EQ(Normalized(prepend, "a b").text, "_a b");
  EXPECT_EQ(Normalized(prepend, "_").text, "__");
  EXPECT_EQ(Normalized(prepend, "").text, "");
}

TEST(Normalizers, ReplaceTakesMatchesFromTheLeft) {
  EXPECT_EQ(Normalized(Replace({{"String", "aa"}}, "b"), "aaaxa").text, "baxa");
  EXPECT_EQ(Normalized(Replace({{"Regex", " {2,}"}}, "_"), "a   b c  ").text, "a_b c_");
  EXPECT_EQ(Normalized(Replace({{"Regex", "x*"}}, "-"), "").text, "");
}

TEST(Normalizers, SayWhetherTheInputsBeginningIsStillThere) {
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  const std::string wide = "\xE3\x80\x80";
  const NormalizedText stripped = Normalized(strip, " \t" + wide + "a b" + wide);
  EXPECT_EQ(stripped.text, "a b");
  EXPECT_FALSE(stripped.at_start);
  EXPECT_TRUE(Normalized(strip, "a ").at_start);
  EXPECT_EQ(Normalized(strip, "  ").text, "");
  EXPECT_FALSE(Normalized(Replace({{"String", "a"}}, ""), "ab").at_start);
  EXPECT_TRUE(Normalized(Replace({{"String", "b"}}, ""), "ab").at_start);
}

TEST(Normalizers, MapCharacters) {
  EXPECT_EQ(Normalized({{"type", "Lowercase"}}, "A\xC3\x89\xC4\xB0z").text, "a\xC3\xA9i\xCC\x87z");
  EXPECT_EQ(Normalized({{"type", "StripAccents"}}, "e\xCC\x81x").text, "ex");
  EXPECT_EQ(Normalized({{"type", "Nmt"}},
                       "\x01"
                       "a\tb\xE2\x80\x8B")
                .text,
            "a b ");
  EXPECT_EQ(Normalized({{"type", "ByteLevel"}}, "a b").text,
            "a\xC4\xA0"
            "b");
}

TEST(Normalizers, GrowthIsLimited) {
  const std::string content(100, 'a');
  const Json replace = Replace({{"String", "a"}}, content.c_str());
  const auto normalizer = ParseNormalizer(replace);
  ASSERT_TRUE(normalizer.ok());
  NormalizedText text{std::string(40, 'a'), true};
  EXPECT_TRUE((*normalizer)->Apply(&text).ok());
  EXPECT_EQ(ReasonOf((*normalizer)->Apply(&text)), "TEXT_TOO_LONG");
}

TEST(Metaspace, SchemesPrependToDifferentTexts) {
  EXPECT_THAT(Cut(Metaspace("always"), "a b", false), ElementsAre("_a", "_b"));
  EXPECT_THAT(Cut(Metaspace("first"), "a b", false), ElementsAre("a", "_b"));
  EXPECT_THAT(Cut(Metaspace("first"), "a b", true), ElementsAre("_a", "_b"));
  EXPECT_THAT(Cut(Metaspace("never"), "a b"), ElementsAre("a", "_b"));
  EXPECT_THAT(Cut(Metaspace("always", false), "a  b "), ElementsAre("_a__b_"));
  EXPECT_THAT(Cut(Metaspace("always"), "a  b "), ElementsAre("_a", "_", "_b", "_"));
}

TEST(Metaspace, PrependsNothingToABlankOrToItself) {
  EXPECT_THAT(Cut(Metaspace("always"), " a"), ElementsAre("_a"));
  EXPECT_THAT(Cut(Metaspace("always"), "_a"), ElementsAre("_a"));
}

TEST(Metaspace, UnderstandsOldFields) {
  Json old = {{"type", "Metaspace"}, {"replacement", "_"}, {"str_rep", "_"}};
  old["add_prefix_space"] = false;
  EXPECT_THAT(Cut(old, "a b"), ElementsAre("a", "_b"));
  old["add_prefix_space"] = true;
  EXPECT_THAT(Cut(old, "a b"), ElementsAre("_a", "_b"));
}

TEST(PreTokenizers, CutAtWhiteSpaceTheirWay) {
  EXPECT_THAT(Cut({{"type", "WhitespaceSplit"}}, " a.b\t\nc"), ElementsAre("a.b", "c"));
  EXPECT_THAT(Cut({{"type", "Whitespace"}}, "a.b c!?"), ElementsAre("a", ".", "b", "c", "!?"));
  EXPECT_THAT(Cut({{"type", "CharDelimiterSplit"}, {"delimiter", ","}}, "a,,b"),
              ElementsAre("a", "b"));
}

TEST(Decoders, MetaspaceDropsMarksOfTheFirstToken) {
  EXPECT_EQ(Whole(Metaspace("always"), {"_a_b", "_c", "_"}), "ab c ");
  EXPECT_EQ(Whole(Metaspace("never"), {"_a", "_b"}), " a b");
}

TEST(Decoders, StripCutsEachTokenAndFuseMakesThemOne) {
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}};
  EXPECT_EQ(Whole(strip, {"  a  ", " b", " ", ""}), " a b");
  const Json fused = Sequence("decoders", {{{"type", "Fuse"}}, strip});
  EXPECT_EQ(Whole(fused, {"  a  ", " b", " "}), " a   b");
  EXPECT_THAT(Streamed(fused, {" ", " a ", " ", "b ", " "}),
              ElementsAre("", " a", " ", " b", " ", ""));
}

TEST(Decoders, ReplaceHoldsBackWhatMayBeAMatch) {
  const Json replace = Replace({{"String", "aab"}}, "X");
  EXPECT_EQ(Whole(replace, {"aaab", "aa", "b"}), "aXaab");
  const Json fused = Sequence("decoders", {{{"type", "Fuse"}}, replace});
  EXPECT_THAT(Streamed(fused, {"xaa", "a", "b", "ca", "d", "aa"}),
              ElementsAre("x", "a", "X", "c", "ad", "", "aa"));
  EXPECT_EQ(Whole(Replace({{"Regex", "[0-9]+"}}, "#"), {"a12", "34"}), "a##");
}

TEST(Decoders, ByteTokensBecomeTheirTextIfItIsGoodAsAWhole) {
  const Json fallback = {{"type", "ByteFallback"}};
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(Whole(fallback, {"<0xE4>", "<0xB8>", "<0xAD>", "x"}), "\xE4\xB8\xADx");
  EXPECT_EQ(Whole(fallback, {"<0x61>", "<0xE4>", "x"}), bad + bad + "x");
  EXPECT_EQ(Whole(fallback, {"<0x61", "<0xZZ>", "<0x0a>"}), "<0x61<0xZZ>\n");
  EXPECT_EQ(Whole(Sequence("decoders", {fallback, Metaspace("always")}), {"<0x61>", "_b"}), "a b");
}

TEST(Decoders, StreamsOfByteTokensSayACharacterAsSoonAsItIsComplete) {
  const Json fallback = {{"type", "ByteFallback"}};
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_THAT(Streamed(fallback, {"<0x0A>", "<0xE4>", "<0xB8>", "<0xAD>", "<0xE4>"}),
              ElementsAre("\n", "", "", "\xE4\xB8\xAD", "", bad));
  EXPECT_THAT(Streamed(fallback, {"<0xC3>", "<0x28>", "<0x41>", "x", "<0x41>"}),
              ElementsAre("", bad + bad, bad, "x", "A", ""));
  EXPECT_THAT(Streamed(fallback, {"<0xFF>", "<0xE4>", "x"}), ElementsAre(bad, bad, "x", ""));
}

}  // namespace
}  // namespace strata
