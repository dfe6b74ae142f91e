// What the files beside a tokenizer.json say of its tokens, against what transformers'
// AutoTokenizer makes of the same folders (tests/golden/tokenizers/configs.jsonl).
#include "text/tokenizer/tokenizer_config.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "tests/text/tokenizer/small_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {
namespace {

// The order of keys counts: tokens are numbered by it.
using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::SmallTokenizer;

FilesBesideTokenizer FilesOf(const Json& files) {
  return *ReadFilesBesideTokenizer([&](const char* name) -> absl::StatusOr<std::string> {
    return files.contains(name) ? files[name].dump() : "";
  });
}

// What the texts of a case come back as.
std::vector<std::string> DecodeAll(const Tokenizer& tokenizer,
                                   const std::vector<std::vector<uint32_t>>& ids, bool skip) {
  std::vector<std::string> texts;
  for (const auto& one : ids) {
    texts.push_back(tokenizer.Decode(one, skip));
    const auto stream = tokenizer.NewStream({}, skip);
    std::string streamed;
    for (const uint32_t id : one) {
      streamed += stream->Add(id);
    }
    EXPECT_EQ(streamed + stream->Finish(), texts.back());
  }
  return texts;
}

void ExpectAsTransformers(const Json& entry, const Json& base,
                          const std::vector<std::string>& texts) {
  const FilesBesideTokenizer files = FilesOf(entry["files"]);
  Json document = base;
  document["added_tokens"] = entry["added_tokens"];
  const auto tokenizer = ParseTokenizer(document.dump(), files);
  const auto config = ParseTokenizerConfig(files);
  if (entry.contains("error")) {
    EXPECT_FALSE(tokenizer.ok());
    EXPECT_FALSE(config.ok());
    EXPECT_THAT(Describe(tokenizer.status()), HasSubstr("tokenizer_config.json: "));
    return;
  }
  ASSERT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
  ASSERT_TRUE(config.ok()) << Describe(config.status());
  Json named = Json::object();
  for (const auto& [name, token] : config->named) {
    named[name] = token.content;
  }
  EXPECT_EQ(named, entry["named"]);
  EXPECT_EQ((*tokenizer)->vocab_size(), entry["vocab_size"].get<uint32_t>());
  const auto wanted = entry["ids"].get<std::vector<std::vector<uint32_t>>>();
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = (*tokenizer)->Encode(texts[i], true);
    ASSERT_TRUE(ids.ok()) << Describe(ids.status());
    EXPECT_EQ(*ids, wanted[i]) << texts[i];
  }
  EXPECT_EQ(DecodeAll(**tokenizer, wanted, false),
            entry["decoded"].get<std::vector<std::string>>());
  if (entry.contains("decoded_skip")) {
    EXPECT_EQ(DecodeAll(**tokenizer, wanted, true),
              entry["decoded_skip"].get<std::vector<std::string>>());
  }
}

TEST(TokenizerConfig, MakesTheTokensThatTransformersMakesOfTheSameFolder) {
  Json bases;
  std::vector<std::string> texts;
  int cases = 0;
  for (const std::string& line :
       testing::ReadLinesOrFail(testing::GoldenPath("tokenizers/configs.jsonl"))) {
    const Json entry = Json::parse(line);
    if (entry.contains("bases")) {
      bases = entry["bases"];
      texts = entry["texts"].get<std::vector<std::string>>();
      continue;
    }
    SCOPED_TRACE(entry.value("name", "") + line.substr(0, 2000));
    ExpectAsTransformers(entry, bases[entry["base"].get<std::string>()], texts);
    ++cases;
  }
  EXPECT_GT(cases, 60);
}

absl::Status StatusOf(const std::string& config, const std::string& map = "",
                      const std::string& added = "") {
  return ParseTokenizer(SmallTokenizer().dump(), {config, map, added}).status();
}

TEST(TokenizerConfig, NamesTheFileAndFieldThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "tokenizer_config.json is no JSON"},
      {"[]", "tokenizer_config.json is no object"},
      {R"({"pad_token":[]})", "tokenizer_config.json: pad_token"},
      {R"({"pad_token":{"content":1}})", "tokenizer_config.json: pad_token"},
      {R"({"pad_token":{"content":"x","rstrip":1}})", "tokenizer_config.json: pad_token: rstrip"},
      {R"({"added_tokens_decoder":[]})", "added_tokens_decoder"},
      {R"({"added_tokens_decoder":{"a":{}}})", "added_tokens_decoder has \"a\""},
      {R"({"added_tokens_decoder":{"1":{"content":"x","special":0}}})",
       "added_tokens_decoder 1: special"},
      {R"({"extra_special_tokens":3})", "extra_special_tokens"},
      {R"({"extra_special_tokens":[3]})", "extra_special_tokens"},
      {R"({"extra_special_tokens":{"a":3}})", "extra_special_tokens.a"},
      {R"({"additional_special_tokens":"x"})", "additional_special_tokens"},
      {R"({"model_specific_special_tokens":["x"]})", "model_specific_special_tokens"},
      {R"({"split_special_tokens":"no"})", "split_special_tokens"},
      {R"({"clean_up_tokenization_spaces":2})", "clean_up_tokenization_spaces"},
  };
  for (const auto& [text, says] : cases) {
    EXPECT_EQ(StatusOf(text).code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Describe(StatusOf(text)), HasSubstr(says)) << text;
  }
  EXPECT_THAT(Describe(StatusOf("", R"({"bos_token":2})")),
              HasSubstr("special_tokens_map.json: bos_token"));
  EXPECT_THAT(Describe(StatusOf("", "", R"({"x":"y"})")), HasSubstr("added_tokens.json: token"));
}

TEST(TokenizerConfig, RefusesByNameWhatWouldReadAnotherFile) {
  const absl::Status status =
      StatusOf(R"({"fast_tokenizer_files":["tokenizer.json","tokenizer.4.0.0.json"]})");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Describe(status), HasSubstr("fast_tokenizer_files"));
  EXPECT_TRUE(StatusOf(R"({"fast_tokenizer_files":["tokenizer.json"]})").ok());
}

TEST(TokenizerConfig, RefusesMistralsFixUnlessThePatternIsFixedOrTheVocabularySmall) {
  nlohmann::json document = SmallTokenizer();
  const FilesBesideTokenizer files = {R"({"fix_mistral_regex":true})", "", ""};
  EXPECT_TRUE(ParseTokenizer(document.dump(), files).ok());
  for (int id = 259; id < 100'001; ++id) {
    document["model"]["vocab"]["token " + std::to_string(id)] = id;
  }
  EXPECT_THAT(Describe(ParseTokenizer(document.dump(), files).status()),
              HasSubstr("fix_mistral_regex"));
  const auto tekken = nlohmann::json::parse(
      testing::ReadFileOrFail(testing::GoldenPath("tokenizers/tekken/tokenizer.json")));
  document["pre_tokenizer"] = tekken["pre_tokenizer"];
  const absl::Status fixed = ParseTokenizer(document.dump(), files).status();
  EXPECT_TRUE(fixed.ok()) << Describe(fixed);
}

}  // namespace
}  // namespace strata
