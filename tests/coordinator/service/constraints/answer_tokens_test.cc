// Tokens as bytes, of the tokenizers that Hugging Face's library was asked about: whatever a text's
// ids are, their bytes behind one another are what they decode as.
#include "coordinator/service/constraints/answer_tokens.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "tests/golden.h"
#include "text/grammar/token_mask.h"

namespace strata {
namespace {

constexpr std::string_view kTexts[] = {
    "{\"name\": \"Zürich\", \"count\": [1, 2.5e-3, null], \"ok\": true}",
    "Plain words, with some punctuation. And: more?",
    "tabs\tand\nlines\n\n  and  blanks ",
    "日本語 𝄞 e\u0301 \u00e9",
};

std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(testing::GoldenPath("tokenizers"))) {
    if (std::filesystem::exists(entry.path() / "tokenizer.json")) {
      folders.push_back(entry.path());
    }
  }
  return folders;
}

TEST(AnswerTokens, AreWhatTheirTextsDecodeAs) {
  size_t held = 0;
  for (const std::string& folder : Folders()) {
    const auto tokenizer = ParseTokenizer(testing::ReadFileOrFail(folder + "/tokenizer.json"));
    ASSERT_TRUE(tokenizer.ok()) << folder << ": " << tokenizer.status();
    const uint32_t size = (*tokenizer)->vocab_size();
    const auto tokens = AnswerTokensOf(**tokenizer, size, {});
    if (!tokens.ok()) {
      EXPECT_EQ(ReasonOf(tokens.status()), "CONSTRAINT_TOKENIZER") << folder;
      continue;
    }
    ++held;
    for (const std::string_view text : kTexts) {
      const auto before = *(*tokenizer)->Encode("a", false);
      const std::string said = (*tokenizer)->Decode(before, false);
      auto all = before;
      std::string joined = said;
      const auto encoded = (*tokenizer)->Encode(text, false);
      if (!encoded.ok()) continue;  // Not in the vocabulary.
      bool special = false;
      for (const uint32_t id : *encoded) {
        special |= tokens->tokens[id].starts_with(kSpecialTokenByte);
        joined += tokens->tokens[id];
        all.push_back(id);
      }
      if (!special) {
        EXPECT_EQ(joined, (*tokenizer)->Decode(all, false)) << folder << ": " << text;
      }
    }
  }
  EXPECT_GE(held, 5u);
}

TEST(AnswerTokens, EndTokensAndTheRestOfTheLogitsHaveNoBytes) {
  const auto tokenizer =
      ParseTokenizer(testing::ReadFileOrFail(testing::SourcePath("models/recall/tokenizer.json")));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const uint32_t size = (*tokenizer)->vocab_size();
  const uint32_t end = *(*tokenizer)->TokenToId("<|eot_id|>");
  const auto more = AnswerTokensOf(**tokenizer, size + 50, {end, size + 100});
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->tokens.size(), size + 50);
  EXPECT_EQ(more->stop_ids, std::vector<int32_t>{static_cast<int32_t>(end)});
  EXPECT_EQ(more->tokens[end], "");
  EXPECT_EQ(more->tokens[size + 7], "");
  EXPECT_EQ(more->tokens[*(*tokenizer)->TokenToId("<|begin_of_text|>")],
            kSpecialTokenByte + std::string("<|begin_of_text|>"));
  // Fewer logits than tokens: those beyond are left out.
  const auto fewer = AnswerTokensOf(**tokenizer, size - 3, {});
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_EQ(fewer->tokens.size(), size - 3);
}

}  // namespace
}  // namespace strata
