// What stands beside a tokenizer.model, and files that are none. What the library gives for texts:
// golden_test.cc.
#include "text/tokenizer/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) {
    out.push_back(static_cast<char>(value | 128));
  }
  out.push_back(static_cast<char>(value));
  return out;
}
std::string Bytes(int field, const std::string& content) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(content.size()) + content;
}
std::string Number(int field, uint64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(value);
}
std::string Piece(const std::string& text, float score, uint64_t kind) {
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof(bits));
  std::string fixed(4, '\0');
  std::memcpy(fixed.data(), &bits, sizeof(bits));
  return Bytes(1, Bytes(1, text) + Varint(2 << 3 | 5) + fixed + Number(3, kind));
}

constexpr uint64_t kBpe = 2;

// BPE: <unk> <s> </s> and 3 "▁", 4 "a", 5 "b", 6 "▁a", 7 "ab".
std::string Model(const std::string& trainer = Number(3, kBpe),
                  const std::string& normalizer = Number(4, 0)) {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) + Piece("\u2581", -9, 1) +
         Piece("a", -10, 1) + Piece("b", -11, 1) + Piece("\u2581a", -1, 1) + Piece("ab", -2, 1) +
         Bytes(2, trainer) + Bytes(3, normalizer);
}

std::unique_ptr<Tokenizer> Load(const std::string& config = "", const std::string& added = "") {
  auto tokenizer = ParseSentencePiece(Model(), config, added);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<uint32_t> Ids(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, true);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *ids;
}

TEST(SentencePiece, PutsAroundATextWhatTheConfigurationSays) {
  EXPECT_THAT(Ids(*Load(), "ab"), ElementsAre(1, 6, 5));
  EXPECT_THAT(Ids(*Load(R"({"add_bos_token": false})"), "ab"), ElementsAre(6, 5));
  EXPECT_THAT(Ids(*Load(R"({"add_eos_token": true})"), "ab"), ElementsAre(1, 6, 5, 2));
  EXPECT_THAT(*Load()->Encode("ab", false), ElementsAre(6, 5));
}

TEST(SentencePiece, FindsControlPiecesAndTokensOfTheOtherFiles) {
  const auto tokenizer =
      Load(R"({"add_bos_token": false, "added_tokens_decoder": {"8": {"content": "<|x|>"}}})",
           R"({"<|x|>": 8, "<|y|>": 9})");
  EXPECT_EQ(tokenizer->vocab_size(), 10u);
  EXPECT_THAT(Ids(*tokenizer, "a<|y|></s><|x|>b"), ElementsAre(6, 9, 2, 8, 3, 5));
  const std::vector<uint32_t> ids = {6, 9, 2, 8, 3, 5};
  EXPECT_EQ(tokenizer->Decode(ids, true), "a<|y|> b");
  EXPECT_EQ(tokenizer->Decode(ids, false), "a<|y|></s><|x|> b");
  EXPECT_EQ(tokenizer->TokenToId("<|y|>"), 9u);
}

TEST(SentencePiece, PutsABlankBeforeTheFirstTextAloneWhereItIsNotLegacy) {
  const std::string config = R"({"add_bos_token": false, "legacy": )";
  EXPECT_THAT(Ids(*Load(config + "true}"), "a</s>a"), ElementsAre(6, 2, 6));
  EXPECT_THAT(Ids(*Load(config + "false}"), "a</s>a"), ElementsAre(6, 2, 4));
  EXPECT_THAT(Ids(*Load(config + "false}"), "</s>a"), ElementsAre(2, 4));
}

TEST(SentencePiece, RefusesTokensWithoutAPlace) {
  for (const char* added : {R"({"<|x|>": 9})", R"({"<|x|>": 4})", R"({"<|x|>": "8"})", "[1]"}) {
    const auto tokenizer = ParseSentencePiece(Model(), "", added);
    EXPECT_EQ(ReasonOf(tokenizer.status()), "TOKENIZER_INVALID") << added;
  }
  EXPECT_THAT(std::string(ParseSentencePiece(Model(), "", R"({"x": 4})").status().message()),
              HasSubstr("token \"x\" has the id 4, where tokenizer.model has \"a\""));
}

TEST(SentencePiece, NamesWhatItDoesNotSupport) {
  const auto says = [](const std::string& model) {
    const absl::Status status = ParseSentencePiece(model, "", "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  EXPECT_THAT(says(Model(Number(3, 3))), HasSubstr("model_type WORD"));
  EXPECT_THAT(says(Model(Number(3, 4))), HasSubstr("model_type CHAR"));
  EXPECT_THAT(says(Model(Number(3, kBpe) + Number(24, 1))), HasSubstr("whitespace_as_suffix"));
  EXPECT_THAT(says(Model(Number(3, kBpe), Number(5, 0))), HasSubstr("escape_whitespaces"));
  EXPECT_THAT(says(Model() + Piece("c", -3, 5)), HasSubstr("unused"));
  EXPECT_THAT(says(Model() + Bytes(5, Bytes(2, "x"))), HasSubstr("denormalizer_spec"));
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  const std::string model = Model();
  for (const std::string& bytes :
       {std::string(), std::string("IQ== 0\nIg== 1\n"), std::string("{}"), std::string(9, '\xff'),
        model.substr(0, model.size() - 1), Bytes(2, Number(3, kBpe)), model + Piece("", 0, 1),
        model + Piece("x", 0, 2), model + Piece("\xff", 0, 1), model + Piece("x", 0, 7),
        model + Piece("x", std::numeric_limits<float>::quiet_NaN(), 1), model + Piece("a", -3, 1),
        Model(Number(3, kBpe), Bytes(2, "abc"))}) {
    const absl::Status status = ParseSentencePiece(bytes, "", "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

}  // namespace
}  // namespace strata
