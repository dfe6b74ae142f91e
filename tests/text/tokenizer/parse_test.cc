// What a tokenizer.json may not be, and what is refused by name.
#include <string>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "tests/text/tokenizer/small_tokenizer.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {
namespace {

using testing::Added;
using ::testing::HasSubstr;
using testing::SmallTokenizer;
using Json = nlohmann::json;

absl::Status StatusOfParsing(const Json& document) {
  return ParseTokenizer(document.dump()).status();
}

void ExpectRefused(const Json& document, absl::StatusCode code, const std::string& saying) {
  const absl::Status status = StatusOfParsing(document);
  EXPECT_EQ(status.code(), code) << Describe(status);
  EXPECT_THAT(Describe(status), HasSubstr(saying));
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

TEST(ParseTokenizer, AcceptsTheSmallOne) {
  EXPECT_TRUE(StatusOfParsing(SmallTokenizer()).ok())
      << Describe(StatusOfParsing(SmallTokenizer()));
}

TEST(ParseTokenizer, RefusesByNameWhatIsNotSupported) {
  const auto with = [](const char* stage, const Json& value) {
    Json document = SmallTokenizer();
    document[stage] = value;
    return document;
  };
  ExpectRefused(with("normalizer", {{"type", "Sideways"}}), kUnimplemented,
                "normalizer \"Sideways\" is not supported yet");
  ExpectRefused(with("normalizer", {{"type", "BertNormalizer"}}), kInvalid,
                "clean_text is not there");
  ExpectRefused(with("normalizer", {{"type", "Sequence"},
                                    {"normalizers", {{{"type", "NFC"}}, {{"type", "NFX"}}}}}),
                kUnimplemented, "normalizer \"NFX\"");
  ExpectRefused(with("pre_tokenizer", {{"type", "UnicodeScripts"}}), kUnimplemented,
                "pre_tokenizer \"UnicodeScripts\"");
  ExpectRefused(with("pre_tokenizer", {{"type", "ByteLevel"}}), kInvalid,
                "add_prefix_space is not there");
  ExpectRefused(with("post_processor", {{"type", "Sideways"}}), kUnimplemented,
                "post_processor \"Sideways\"");
  ExpectRefused(with("decoder", {{"type", "WordPiece"}}), kInvalid, "prefix");
  ExpectRefused(with("decoder", {{"type", "Sequence"},
                                 {"decoders", {{{"type", "ByteLevel"}}, {{"type", "CTC"}}}}}),
                kUnimplemented, "decoder \"CTC\"");
  ExpectRefused(with("model", {{"type", "WordPiece"}, {"vocab", Json::object()}}), kInvalid,
                "unk_token");
  ExpectRefused(with("model", {{"type", "Sideways"}, {"vocab", Json::object()}}), kUnimplemented,
                "model \"Sideways\"");
  ExpectRefused(with("pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}), kInvalid,
                "length is not above 0");
  Json dropout = SmallTokenizer();
  dropout["model"]["dropout"] = 0.1;
  ExpectRefused(dropout, kUnimplemented, "dropout");
}

TEST(ParseTokenizer, RefusesHostileVocabularies) {
  Json document = SmallTokenizer();
  document["model"]["vocab"]["twice"] = 256;
  ExpectRefused(document, kInvalid, "the same id 256");
  document = SmallTokenizer();
  document["model"]["vocab"]["far"] = 4000000000u;
  ExpectRefused(document, kInvalid, "out of range");
  for (const Json& id : {Json(-1), Json(1.5), Json("7"), Json(nullptr), Json(1e30)}) {
    document["model"]["vocab"]["far"] = id;
    ExpectRefused(document, kInvalid, "\"far\"");
  }
  document["model"]["vocab"] = Json::array({1, 2});
  ExpectRefused(document, kInvalid, "vocab is not an object");
}

TEST(ParseTokenizer, RefusesHostileMerges) {
  const auto with = [](const Json& merge) {
    Json document = SmallTokenizer();
    document["model"]["merges"].push_back(merge);
    return document;
  };
  ExpectRefused(with({"a", "nowhere"}), kInvalid, "merges: entry 3 joins \"nowhere\"");
  ExpectRefused(with({"b", "b"}), kInvalid, "merges: entry 3 makes \"bb\"");
  ExpectRefused(with("a"), kInvalid, "merges: entry 3 is not a pair");
  ExpectRefused(with("a b c"), kInvalid, "merges: entry 3 is not a pair");
  ExpectRefused(with({"a", 1}), kInvalid, "merges: entry 3 is not a pair");
  ExpectRefused(with(Json::array({"a"})), kInvalid, "merges: entry 3 is not a pair");
}

// As Hugging Face's library does, which then refuses the text.
TEST(ParseTokenizer, AnUnknownTokenOutsideTheVocabularyRefusesOnlyTextsThatNeedIt) {
  Json document = SmallTokenizer();
  document["model"]["unk_token"] = "<unk>";
  document["pre_tokenizer"] = nullptr;
  auto tokenizer = ParseTokenizer(document.dump());
  ASSERT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
  EXPECT_EQ(*(*tokenizer)->Encode("abc", false), std::vector<uint32_t>{257});
  EXPECT_THAT(Describe((*tokenizer)
                           ->Encode("ab\xE4\xB8\xAD"
                                    "c",
                                    false)
                           .status()),
              HasSubstr("\xE4\xB8\xAD"));
  // Without one, and without tokens for bytes, such characters are left out.
  document["model"]["unk_token"] = nullptr;
  document["model"]["byte_fallback"] = true;
  tokenizer = ParseTokenizer(document.dump());
  ASSERT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
  EXPECT_EQ(*(*tokenizer)
                 ->Encode("ab\xE4\xB8\xAD"
                          "c",
                          false),
            std::vector<uint32_t>{257});
}

TEST(ParseTokenizer, WordLevelTakesWholeWords) {
  Json document = SmallTokenizer();
  document["pre_tokenizer"] = {{"type", "Whitespace"}};
  document["decoder"] = nullptr;
  document["model"] = {{"vocab", {{"[U]", 0}, {"one", 1}, {"two", 2}}}, {"unk_token", "[U]"}};
  for (const bool typed : {true, false}) {
    if (typed) {
      document["model"]["type"] = "WordLevel";
    }
    const auto tokenizer = ParseTokenizer(document.dump());
    ASSERT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
    EXPECT_EQ(*(*tokenizer)->Encode("two one, one", false), (std::vector<uint32_t>{2, 1, 0, 1}));
    EXPECT_EQ((*tokenizer)->Decode(std::vector<uint32_t>{2, 0, 1}, false), "two [U] one");
    EXPECT_EQ((*tokenizer)->kind(), "WordLevel");
    document["model"].erase("type");
  }
  document["model"]["unk_token"] = "<unk>";
  const auto tokenizer = ParseTokenizer(document.dump());
  ASSERT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
  EXPECT_EQ(*(*tokenizer)->Encode("two one", false), (std::vector<uint32_t>{2, 1}));
  EXPECT_EQ(ReasonOf((*tokenizer)->Encode("two three", false).status()), "TEXT_NOT_IN_VOCABULARY");
}

TEST(ParseTokenizer, FixedLengthCutsEveryPieceAnew) {
  Json document = SmallTokenizer();
  const auto ids = [&document](const std::string& text) {
    const auto tokenizer = ParseTokenizer(document.dump());
    EXPECT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
    return *(*tokenizer)->Encode(text, false);
  };
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  document["pre_tokenizer"] = {
      {"type", "Sequence"}, {"pretokenizers", {{{"type", "FixedLength"}, {"length", 2}}, bytes}}};
  EXPECT_EQ(ids("abcab"), (std::vector<uint32_t>{256, 'c', 'a', 'b'}));
  EXPECT_EQ(ids("\xE4\xB8\xAD"
                "abab")
                .size(),
            3u + 1 + 2 + 1);
  document["pre_tokenizer"]["pretokenizers"][0].erase("length");  // 5.
  EXPECT_EQ(ids("abababcab"), (std::vector<uint32_t>{256, 256, 'a', 'b', 'c', 256}));
}

TEST(ParseTokenizer, RefusesATemplateWhoseIdsTheVocabularyLacks) {
  const auto with_id = [](uint32_t id) {
    Json document = SmallTokenizer();
    document["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {id}}, {"tokens", {"<s>"}}}}}}};
    return document;
  };
  EXPECT_TRUE(StatusOfParsing(with_id(258)).ok()) << Describe(StatusOfParsing(with_id(258)));
  ExpectRefused(with_id(259), kInvalid, "adds the id 259");
}

TEST(ParseTokenizer, RefusesHostileAddedTokensAndTemplates) {
  Json document = SmallTokenizer();
  document["added_tokens"] = Json::array({Added("<a>", {{"id", 1u << 30}})});
  ExpectRefused(document, kInvalid, "id is not in range");
  document["added_tokens"] = Json::array({Added(std::string(5000, 'x'))});
  ExpectRefused(document, kInvalid, "added_token_bytes=4096");
  document["added_tokens"] = Json{{"content", 1}};
  ExpectRefused(document, kInvalid, "added_tokens is not an array");
  document["added_tokens"] = Json::array({Added("<a>", {{"lstrip", "yes"}})});
  ExpectRefused(document, kInvalid, "lstrip is not true or false");
  document = SmallTokenizer();
  document["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}},
                                {"special_tokens", Json::object()}};
  ExpectRefused(document, kInvalid, "special_tokens lacks");
}

TEST(ParseTokenizer, RefusesStagesWhoseFieldsAreWrong) {
  const auto with = [](const char* stage, const Json& value) {
    Json document = SmallTokenizer();
    document[stage] = value;
    return document;
  };
  const auto replace = [](const Json& pattern) {
    return Json{{"type", "Replace"}, {"pattern", pattern}, {"content", "x"}};
  };
  for (const char* stage : {"normalizer", "decoder"}) {
    ExpectRefused(with(stage, replace({{"String", ""}})), kInvalid, "a text of 1 to 4096 bytes");
    ExpectRefused(with(stage, replace({{"Regex", "(a"}})), kInvalid, "lacks a )");
    ExpectRefused(with(stage, replace("a")), kInvalid, "pattern of");
  }
  for (const char* stage : {"pre_tokenizer", "decoder"}) {
    const auto metaspace = [&](const Json& fields) {
      Json value = {{"type", "Metaspace"}, {"replacement", "_"}};
      value.update(fields);
      return with(stage, value);
    };
    EXPECT_TRUE(StatusOfParsing(metaspace({{"prepend_scheme", "first"}})).ok());
    ExpectRefused(metaspace({{"replacement", "ab"}}), kInvalid, "replacement is not one character");
    ExpectRefused(metaspace({{"prepend_scheme", "last"}}), kInvalid, "prepend_scheme");
    ExpectRefused(metaspace({{"prepend_scheme", "first"}, {"add_prefix_space", false}}), kInvalid,
                  "contradicts add_prefix_space");
  }
  ExpectRefused(with("decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}}), kInvalid,
                "start is not a number in range");
  const auto charsmap = [&](const std::string& base64) {
    return with("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", base64}});
  };
  EXPECT_TRUE(StatusOfParsing(charsmap("")).ok());
  ExpectRefused(charsmap("?"), kInvalid, "precompiled_charsmap is not base64");
  ExpectRefused(charsmap("AAA="), kInvalid, "has no size");
  ExpectRefused(charsmap("CAAAAAAAAAA="), kInvalid, "is shorter than it says");
  ExpectRefused(charsmap("AAAAAP8="), kInvalid, "no UTF-8");
}

TEST(ParseTokenizer, RefusesDecodersThatMakeEndlessText) {
  Json document = SmallTokenizer();
  const Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(200, 'a')}};
  document["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<Json>(2, replace)}};
  EXPECT_TRUE(StatusOfParsing(document).ok());
  document["decoder"]["decoders"] = std::vector<Json>(9, replace);
  ExpectRefused(document, kInvalid, "decoder_growth=65536");
}

TEST(ParseTokenizer, RefusesHostileUnigrams) {
  const auto with = [](const Json& model) {
    Json document = SmallTokenizer();
    document["model"] = model;
    document["model"]["type"] = "Unigram";
    return document;
  };
  const Json item = Json::array({"a", -1.5});
  EXPECT_TRUE(StatusOfParsing(with({{"vocab", Json::array({item, item})}, {"unk_id", 1}})).ok());
  ExpectRefused(with({{"vocab", Json::array()}}), kInvalid, "vocab is empty");
  ExpectRefused(with({{"vocab", Json::object()}}), kInvalid, "vocab is not an array");
  ExpectRefused(with({{"vocab", Json::array({item, item})}, {"unk_id", 2}}), kInvalid,
                "unk_id 2 is no token");
  ExpectRefused(with({{"vocab", Json::array({item, Json::array({"b"})})}}), kInvalid,
                "item 1 of vocab");
  ExpectRefused(with({{"vocab", Json::array({item, Json::array({1, 2})})}}), kInvalid,
                "item 1 of vocab");
  ExpectRefused(with({{"vocab", Json::array({item, Json::array({std::string(5000, 'x'), 0})})}}),
                kInvalid, "unigram_token_bytes=4096");
}

TEST(ParseTokenizer, RefusesPatternsThatDoNotCompile) {
  const auto with = [](const std::string& pattern) {
    Json document = SmallTokenizer();
    document["pre_tokenizer"] = {{"type", "Split"},
                                 {"pattern", {{"Regex", pattern}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}};
    return document;
  };
  EXPECT_TRUE(StatusOfParsing(with(R"(\p{L}+)")).ok());
  ExpectRefused(with("(a"), kInvalid, "lacks a )");
  ExpectRefused(with("[a"), kInvalid, "lacks a ]");
  ExpectRefused(with("a)"), kInvalid, "a ) too many");
  ExpectRefused(with("*"), kInvalid, "repeats nothing");
  ExpectRefused(with(R"(\p{Klingon})"), kInvalid, "does not compile");
  ExpectRefused(with(R"((?~a))"), kUnimplemented, "not supported yet");
  ExpectRefused(with(R"(\g<x>)"), kUnimplemented, "not supported yet");
  ExpectRefused(with(std::string(500, '(')), kInvalid, "nested too deeply");
  Json behavior = with("a");
  behavior["pre_tokenizer"]["behavior"] = "Sideways";
  ExpectRefused(behavior, kInvalid, "behavior");
}

TEST(ParseTokenizer, RefusesWhatIsNoTokenizer) {
  for (const std::string text : {"", "{", "[]", "null", "{}", "{\"model\":{}}", "\xff\xfe",
                                 "{\"model\":3}", "{\"a\":\"\xff\"}"}) {
    EXPECT_FALSE(ParseTokenizer(text).ok()) << text;
  }
  const absl::Status deep = ParseTokenizer(std::string(1 << 20, '[')).status();
  EXPECT_THAT(Describe(deep), HasSubstr("nested too deeply"));
  const absl::Status large = ParseTokenizer(std::string((100 << 20) + 1, ' ')).status();
  EXPECT_EQ(ReasonOf(large), "TOKENIZER_TOO_LARGE");
  EXPECT_EQ(ReasonOf(ParseTokenizer("[" + std::string(17'000'000, ',') + "]").status()),
            "TOKENIZER_TOO_LARGE");
}

TEST(ParseTiktoken, RefusesFilesThatItDoesNotUnderstand) {
  const auto status = [](const std::string& ranks, const char* config = "") {
    return ParseTiktoken(ranks, "qwen.tiktoken", config).status();
  };
  EXPECT_TRUE(status("YQ== 0\nYg== 1\r\nYWI= 2\n\n").ok());
  EXPECT_THAT(Describe(ParseTiktoken("YQ== 0", "other.tiktoken", "").status()),
              HasSubstr("the split pattern of other.tiktoken is not known"));
  for (const char* line : {"YQ==", "YQ== x", "? 1", " 1", "YQ== 1 2", "YQ== -1"}) {
    EXPECT_THAT(Describe(status(std::string("Yg== 0\n") + line)), HasSubstr("line 2")) << line;
  }
  EXPECT_THAT(Describe(status("YQ== 0\nYg== 0")), HasSubstr("the same id 0"));
  EXPECT_THAT(Describe(status("YQ== 4000000000")), HasSubstr("out of range"));
  EXPECT_THAT(Describe(status(std::string(4000, 'Y') + " 0")), HasSubstr("tiktoken_token_bytes"));
  EXPECT_THAT(Describe(status("YQ== 0", R"({"added_tokens_decoder":{"x":{}}})")),
              HasSubstr("\"x\" is no id"));
  EXPECT_THAT(Describe(status("YQ== 0", R"({"added_tokens_decoder":{"1":{}}})")),
              HasSubstr("content is not a string"));
}

TEST(ParseTokenizer, NeverCrashesOnBrokenBytes) {
  const std::string whole = SmallTokenizer().dump();
  uint32_t state = 7;
  const auto random = [&state](size_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
  };
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = whole;
    for (size_t n = 1 + random(3); n > 0; --n) {
      text[random(text.size())] = static_cast<char>(random(256));
    }
    if (i % 3 == 0) {
      text.resize(random(text.size()));
    }
    if (const auto tokenizer = ParseTokenizer(text); tokenizer.ok()) {
      ++accepted;
      ASSERT_TRUE((*tokenizer)->Encode("abc abc \xC3\xA9", true).ok());
    } else {
      ASSERT_FALSE(Describe(tokenizer.status()).empty());
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace strata
