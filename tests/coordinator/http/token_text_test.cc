// Names, bytes and offsets of tokens, with every golden tokenizer.
#include "coordinator/http/token_text.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/golden.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {
namespace {

using testing::GoldenPath;
using testing::ReadFileOrFail;

// Characters of one to four bytes, some of them in no vocabulary, and blanks.
constexpr char kText[] = "Hello w\u00f6rld \u65e5\u672c\u8a9e  \U0001f980\U0001f9ec x\u0950!";

void ExpectBytesAndOffsetsOf(const Tokenizer& tokenizer, const std::string& name) {
  const auto ids = tokenizer.Encode(kText, /*add_special_tokens=*/false);
  ASSERT_TRUE(ids.ok()) << name << ": " << Describe(ids.status());
  const std::string text = tokenizer.Decode(*ids, /*skip_special_tokens=*/false);
  TokenTexts texts(&tokenizer);
  TextOffsets offsets(&tokenizer);
  offsets.BeginPrompt(text);
  std::string joined;
  size_t last = 0;
  for (const uint32_t id : *ids) {
    // The offset is that of the character that the bytes so far have begun, or of the next one.
    size_t begun = joined.size();
    while (begun > 0 && begun < text.size() && (text[begun] & 0xc0) == 0x80) --begun;
    const size_t at = offsets.OfPrompt(id);
    EXPECT_EQ(at, CountCharacters(std::string_view(text).substr(0, begun))) << name << " " << id;
    EXPECT_GE(at, last) << name;
    last = at;
    joined += texts.Bytes(id).value_or("");
    texts.Advance(id);
  }
  EXPECT_EQ(joined, text) << name;
}

class TokenTextsOf : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenTextsOf, BytesMakeTheTextAndOffsetsAreInIt) {
  const auto tokenizer = ParseTokenizer(
      ReadFileOrFail(GoldenPath(std::string("tokenizers/") + GetParam() + "/tokenizer.json")));
  ASSERT_TRUE(tokenizer.ok());
  ExpectBytesAndOffsetsOf(**tokenizer, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Families, TokenTextsOf,
                         ::testing::Values("cl100k", "command", "deepseek", "deepseek_llm",
                                           "falcon", "gemma", "gpt2", "gpt2_prefix", "kimi",
                                           "llama2", "llama2_metaspace", "llama3",
                                           "metaspace_always", "metaspace_never", "o200k", "phi3",
                                           "possessive", "qwen", "tekken", "tiktoken"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenTexts, OfSentencePieceFilesHaveBytesToo) {
  for (const char* file : {"llama.model", "unigram.model"}) {
    const auto tokenizer = ParseSentencePiece(
        ReadFileOrFail(GoldenPath("tokenizers/sentencepiece_files/") + file), "", "");
    ASSERT_TRUE(tokenizer.ok());
    ExpectBytesAndOffsetsOf(**tokenizer, file);
  }
}

TEST(TokenTexts, WithoutATokenizerHaveANameAndNoBytes) {
  const TokenTexts texts(nullptr);
  EXPECT_EQ(texts.Text(17), "token_id:17");
  EXPECT_EQ(texts.Bytes(17), std::nullopt);
  TextOffsets offsets(nullptr);
  EXPECT_EQ(offsets.OfAnswer(17), 0u);
  EXPECT_EQ(offsets.OfAnswer(17), 0u);
}

}  // namespace
}  // namespace strata
