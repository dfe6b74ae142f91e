#include "text/tokenizer/tokenizer.h"

#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/text/tokenizer/small_tokenizer.h"
#include "text/tokenizer/tokenize_jsonl.h"

namespace strata {
namespace {

using testing::Added;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SmallTokenizer;
using Json = nlohmann::json;
using Ids = std::vector<uint32_t>;

std::unique_ptr<Tokenizer> Parsed(const Json& document) {
  auto tokenizer = ParseTokenizer(document.dump());
  EXPECT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
  return *std::move(tokenizer);
}

std::unique_ptr<Tokenizer> WithAdded(const std::vector<Json>& tokens) {
  Json document = SmallTokenizer();
  document["added_tokens"] = tokens;
  return Parsed(document);
}

Ids Encoded(const Tokenizer& tokenizer, const std::string& text, bool special = false) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << Describe(ids.status());
  return ids.ok() ? *ids : Ids{};
}

TEST(Bpe, JoinsByRankAndFromTheLeft) {
  const auto tokenizer = Parsed(SmallTokenizer());
  EXPECT_THAT(Encoded(*tokenizer, "abc"), ElementsAre(257));
  EXPECT_THAT(Encoded(*tokenizer, "aab"), ElementsAre('a', 256));
  EXPECT_THAT(Encoded(*tokenizer, "abab"), ElementsAre(256, 256));
  // " a" has a later rank than "ab".
  EXPECT_THAT(Encoded(*tokenizer, "x ab x a"), ElementsAre('x', ' ', 256, ' ', 'x', 258));
  EXPECT_THAT(Encoded(*tokenizer, ""), ElementsAre());
}

TEST(Bpe, IgnoreMergesTakesWholePiecesFirst) {
  Json document = SmallTokenizer();
  document["model"]["vocab"]["zzz"] = 259;  // No merge leads to it.
  EXPECT_THAT(Encoded(*Parsed(document), "zzz"), ElementsAre('z', 'z', 'z'));
  document["model"]["ignore_merges"] = true;
  EXPECT_THAT(Encoded(*Parsed(document), "zzz"), ElementsAre(259));
  EXPECT_THAT(Encoded(*Parsed(document), "zzzz"), ElementsAre('z', 'z', 'z', 'z'));
}

TEST(Bpe, MegabytesWithoutABreakAreEncodedWithoutQuadraticCost) {
  const auto tokenizer = Parsed(SmallTokenizer());
  std::string word;
  for (int i = 0; i < 350'000; ++i) {
    word += "abc";
  }
  EXPECT_EQ(Encoded(*tokenizer, word), Ids(350'000, 257));  // Quadratic cost takes hours.
  EXPECT_EQ(Encoded(*tokenizer, std::string(1 << 20, ' ')).size(), size_t{1} << 20);
}

TEST(Unigram, EquallyGoodWaysAreToldApartAsTheScoresAreRead) {
  const std::string many(15, '=');
  const std::string few(13, '=');
  Json document = SmallTokenizer();
  document["pre_tokenizer"] = nullptr;
  document["model"] = {
      {"type", "Unigram"},
      {"unk_id", 0},
      {"vocab", Json::array({Json::array({"<unk>", 0.0}), Json::array({"_", -0.8128582970006661}),
                             Json::array({many, -10.305046456148947}),
                             Json::array({few, -10.203998576746862})})}};
  // Sums of the nearest doubles are the same for each order; Hugging Face's library has this one.
  EXPECT_THAT(Encoded(*Parsed(document), "_" + std::string(43, '=')), ElementsAre(1, 2, 2, 3));
}

TEST(AddedTokens, LongestOfTheLeftmostWins) {
  const auto tokenizer = WithAdded({Added("<a"), Added("<ab>"), Added("b>c")});
  EXPECT_EQ(tokenizer->TokenToId("<a"), 259u);
  EXPECT_EQ(tokenizer->vocab_size(), 262u);
  EXPECT_THAT(Encoded(*tokenizer, "x<ab>c"), ElementsAre('x', 260, 'c'));
  EXPECT_THAT(Encoded(*tokenizer, "<ab<ab>"), ElementsAre(259, 'b', 260));
  EXPECT_THAT(Encoded(*tokenizer, "ab>c"), ElementsAre('a', 261));
}

TEST(AddedTokens, StripFlagsTakeNeighbouringWhiteSpace) {
  const auto tokenizer =
      WithAdded({Added("<l>", {{"lstrip", true}}), Added("<r>", {{"rstrip", true}})});
  EXPECT_THAT(Encoded(*tokenizer, "x \t\xE2\x80\x83<l> y"), ElementsAre('x', 259, ' ', 'y'));
  EXPECT_THAT(Encoded(*tokenizer, "x <r> \n y"), ElementsAre('x', ' ', 260, 'y'));
  EXPECT_THAT(Encoded(*tokenizer, "<r>  <l>"), ElementsAre(260, 259));
}

TEST(AddedTokens, SingleWordsStandAlone) {
  const auto tokenizer = WithAdded({Added("cat", {{"single_word", true}})});
  EXPECT_THAT(Encoded(*tokenizer, "cat"), ElementsAre(259));
  EXPECT_THAT(Encoded(*tokenizer, "(cat)"), ElementsAre('(', 259, ')'));
  EXPECT_THAT(Encoded(*tokenizer, "cats"), ElementsAre('c', 'a', 't', 's'));
  EXPECT_THAT(Encoded(*tokenizer, "_cat"), ElementsAre('_', 'c', 'a', 't'));
  EXPECT_THAT(Encoded(*tokenizer,
                      "\xC3\xA9"
                      "cat"),
              ElementsAre(0xC3, 0xA9, 'c', 'a', 't'));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  Json document = SmallTokenizer();
  document["normalizer"] = {{"type", "NFC"}};
  const std::string composed = "\xC3\xA9";
  const std::string decomposed = "e\xCC\x81";
  document["added_tokens"] = Json::array({Added(decomposed, {{"normalized", true}})});
  EXPECT_THAT(Encoded(*Parsed(document), "x" + composed), ElementsAre('x', 259));
  EXPECT_THAT(Encoded(*Parsed(document), "x" + decomposed), ElementsAre('x', 259));
  document["added_tokens"] = Json::array({Added(decomposed)});
  EXPECT_THAT(Encoded(*Parsed(document), "x" + composed), ElementsAre('x', 0xC3, 0xA9));
  EXPECT_THAT(Encoded(*Parsed(document), "x" + decomposed), ElementsAre('x', 259));
}

TEST(AddedTokens, KeepTheModelsIdsAndAreNumberedOtherwise) {
  const auto tokenizer = WithAdded({Added("ab", {{"id", 5}}), Added("<new>", {{"id", 900}})});
  EXPECT_EQ(tokenizer->TokenToId("ab"), 256u);
  EXPECT_EQ(tokenizer->TokenToId("<new>"), 259u);
  EXPECT_EQ(tokenizer->vocab_size(), 260u);
}

TEST(Decoding, SpecialTokensAreLeftOutOthersAreNot) {
  const auto tokenizer = WithAdded({Added("<s>"), Added("<think>", {{"special", false}})});
  const Ids ids = {259, 'h', 'i', 260};
  EXPECT_EQ(tokenizer->Decode(ids, true), "hi<think>");
  EXPECT_EQ(tokenizer->Decode(ids, false), "<s>hi<think>");
  EXPECT_EQ(tokenizer->Decode(Ids{'h', 7777, 4294967295u, 'i'}, false), "hi");
}

TEST(Decoding, ReplacesEachMaximalInvalidSubpart) {
  const auto tokenizer = Parsed(SmallTokenizer());
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(tokenizer->Decode(Ids{0xE4, 0xB8}, false), bad);
  EXPECT_EQ(tokenizer->Decode(Ids{0xE4, 0xB8, 'x'}, false), bad + "x");
  EXPECT_EQ(tokenizer->Decode(Ids{0xED, 0xA0, 0x80}, false), bad + bad + bad);
  EXPECT_EQ(tokenizer->Decode(Ids{0xF0, 0x9F, 0xE4, 0xB8, 0xAD}, false), bad + "\xE4\xB8\xAD");
}

TEST(Streaming, SaysNoHalfCharacter) {
  const auto tokenizer = Parsed(SmallTokenizer());
  const auto stream = tokenizer->NewStream(Ids{'q', 0xE4}, true);
  EXPECT_EQ(stream->Add(0xB8), "");
  EXPECT_EQ(stream->Add(0xAD), "\xE4\xB8\xAD");
  EXPECT_EQ(stream->Add('a'), "a");
  EXPECT_EQ(stream->Add(0xF0), "");
  EXPECT_EQ(stream->Finish(), "\xEF\xBF\xBD");
}

TEST(Encoding, RefusesTextThatIsNoUtf8WithTheOffset) {
  const auto tokenizer = Parsed(SmallTokenizer());
  for (const auto& [text, offset] :
       std::vector<std::pair<std::string, std::string>>{{"ab\xFF", "byte 2"},
                                                        {"\xC0\xAF", "byte 0"},
                                                        {"a\xED\xA0\x80", "byte 1"},
                                                        {"abc\xE4\xB8", "byte 3"},
                                                        {"\xF4\x90\x80\x80", "byte 0"}}) {
    const auto ids = tokenizer->Encode(text, true);
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Describe(ids.status()), HasSubstr(offset));
  }
  EXPECT_TRUE(tokenizer->Encode(std::string("\0\x7F\xF4\x8F\xBF\xBF", 6), true).ok());
}

TEST(Encoding, OfATextWithTooManyIdsNoMoreThanOneTooManyAreLookedFor) {
  Json document = SmallTokenizer();
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "abc ";
  for (const bool one_piece : {false, true}) {
    document["pre_tokenizer"]["use_regex"] = !one_piece;
    const auto tokenizer = Parsed(document);
    const auto some = tokenizer->EncodeUpTo(text, true, 100);
    ASSERT_TRUE(some.ok());
    EXPECT_GT(some->size(), 100u);
    if (!one_piece) {
      EXPECT_LT(some->size(), 110u);
    }
    EXPECT_EQ(tokenizer->EncodeUpTo(text, true, 1'000'000)->size(), 40'000u);
    EXPECT_EQ(*tokenizer->EncodeUpTo("abc", true, 1), Ids{257});
  }
}

TEST(Encoding, OneIdStandsForNoMoreBytesThanItsTokenizerSays) {
  Json document = SmallTokenizer();
  EXPECT_EQ(Parsed(document)->max_bytes_per_id(), 4u) << "no token is longer than a character";
  document["model"]["vocab"]["abĠabĠ"] = 259;
  EXPECT_EQ(Parsed(document)->max_bytes_per_id(), 6u) << "a blank is one byte";
  document["added_tokens"] = Json::array({Added("<|eight|>")});
  EXPECT_EQ(Parsed(document)->max_bytes_per_id(), 9u);
  document["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(Parsed(document)->max_bytes_per_id(), 144u);
  // What swallows any length.
  Json other = document;
  other["model"]["vocab"].erase("!");
  EXPECT_EQ(Parsed(other)->max_bytes_per_id(), 0u) << "a byte without a token is dropped";
  other = document;
  other["added_tokens"] = Json::array({Added("<|eight|>", {{"rstrip", true}})});
  EXPECT_EQ(Parsed(other)->max_bytes_per_id(), 0u);
  other = document;
  other["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_EQ(Parsed(other)->max_bytes_per_id(), 0u);
  other = document;
  other["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_EQ(Parsed(other)->max_bytes_per_id(), 0u);
  other = document;
  other["pre_tokenizer"] = nullptr;
  EXPECT_EQ(Parsed(other)->max_bytes_per_id(), 0u) << "characters without a token are dropped";
  other["model"]["unk_token"] = "abc";
  EXPECT_EQ(Parsed(other)->max_bytes_per_id(), 144u);
  other["model"]["fuse_unk"] = true;
  EXPECT_EQ(Parsed(other)->max_bytes_per_id(), 0u);
}

TEST(Encoding, TemplatesApplyOnlyWhenAsked) {
  Json document = SmallTokenizer();
  document["added_tokens"] = Json::array({Added("<s>"), Added("</s>")});
  const auto item = [](const char* id) { return Json{{"SpecialToken", {{"id", id}}}}; };
  document["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {item("<s>"), {{"Sequence", {{"id", "A"}}}}, item("</s>")}},
         {"special_tokens",
          {{"<s>", {{"id", "<s>"}, {"ids", {259}}}}, {"</s>", {{"ids", {260}}}}}}}}}};
  const auto tokenizer = Parsed(document);
  EXPECT_THAT(Encoded(*tokenizer, "x", true), ElementsAre(259, 'x', 260));
  EXPECT_THAT(Encoded(*tokenizer, "x<s>", false), ElementsAre('x', 259));
  EXPECT_THAT(Encoded(*tokenizer, "", true), ElementsAre(259, 260));
}

TEST(Encoding, ManyThreadsGetTheSameIds) {
  const auto tokenizer = Parsed(SmallTokenizer());
  const std::string text = "abc abab 123 \xE4\xB8\xAD don't  abc\n";
  const Ids wanted = Encoded(*tokenizer, text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const auto ids = tokenizer->Encode(text, false);
        count += ids.ok() && *ids == wanted && tokenizer->Decode(wanted, true) == text ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST(Jsonl, AnswersEachLineInOneLine) {
  const auto tokenizer = WithAdded({Added("<s>")});
  EXPECT_EQ(TokenizeLine(*tokenizer, R"({"text":"abc<s>","add_special_tokens":false})"),
            R"({"ids":[257,259]})");
  EXPECT_EQ(TokenizeLine(*tokenizer, R"({"text":""})"), R"({"ids":[]})");
  EXPECT_EQ(DetokenizeLine(*tokenizer, R"({"ids":[257,259,10],"skip_special_tokens":true})"),
            R"({"text":"abc\n"})");
  EXPECT_EQ(DetokenizeLine(*tokenizer, R"({"ids":[259],"skip_special_tokens":false})"),
            R"({"text":"<s>"})");
}

TEST(Jsonl, RefusesALineWithItsReason) {
  const auto tokenizer = Parsed(SmallTokenizer());
  for (const std::string line :
       {"", "x", "[]", "{}", R"({"text":1})", R"({"text":"a","add_special_tokens":1})",
        R"({"text":"\ud800"})", "{\"text\":\"\xff\"}", R"({"text":"a","what":1})"}) {
    const Json answer = Json::parse(TokenizeLine(*tokenizer, line));
    EXPECT_EQ(answer.size(), 1u) << line;
    EXPECT_FALSE(answer.value("error", "").empty()) << line;
  }
  for (const std::string line : {"", R"({"ids":[-1]})", R"({"ids":[1.5]})", R"({"ids":"a"})",
                                 R"({"ids":[4294967296]})", R"({"ids":[["a"]]})"}) {
    EXPECT_TRUE(Json::parse(DetokenizeLine(*tokenizer, line)).contains("error")) << line;
  }
}

}  // namespace
}  // namespace strata
