#include "text/tokenizer/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/status.h"
#include "tests/common/checkpoint/made_gguf.h"
#include "tests/golden.h"
#include "text/tokenizer/gguf_pre_tokenizers.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::GoldenPath;
using ::testing::HasSubstr;
using testing::MadeGguf;
using testing::ReadFileOrFail;
using testing::ReadLinesOrFail;
using Ids = std::vector<uint32_t>;

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const MadeGguf& made) {
  const std::string file = made.File();
  const auto header = ParseGgufHeader(file, file.size(), "m.gguf");
  EXPECT_TRUE(header.ok()) << header.status();
  return MakeGgufTokenizer(*header);
}
std::string Problem(const MadeGguf& made) { return Describe(TokenizerOf(made).status()); }

Ids EncodeOrFail(const Tokenizer& tokenizer, const std::string& text, bool special = false) {
  const auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << text << ": " << ids.status();
  return ids.value_or(Ids());
}

std::string TokenizerFolder(const std::string& name) { return "tokenizers/" + name + "/"; }

// A byte-level tokenizer.json of the golden ones, as llama.cpp's converter writes it.
MadeGguf Converted(const std::string& name, const std::string& pre) {
  const json source =
      json::parse(ReadFileOrFail(GoldenPath(TokenizerFolder(name) + "tokenizer.json")));
  std::map<uint64_t, std::string> tokens;
  std::map<uint64_t, int32_t> kinds;
  for (const auto& [token, id] : source["model"]["vocab"].items()) {
    tokens[id] = token;
    kinds[id] = 1;
  }
  for (const json& added : source["added_tokens"]) {
    tokens[added["id"]] = added["content"];
    kinds[added["id"]] = added["special"].get<bool>() ? 3 : 4;
  }
  std::vector<std::string> list, merges;
  std::vector<int32_t> types;
  for (const auto& [id, token] : tokens) {
    EXPECT_EQ(id, list.size());
    list.push_back(token);
    types.push_back(kinds[id]);
  }
  for (const json& merge : source["model"]["merges"]) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  MadeGguf made;
  made.String("tokenizer.ggml.model", "gpt2");
  if (!pre.empty()) made.String("tokenizer.ggml.pre", pre);
  made.Strings("tokenizer.ggml.tokens", list).Ints("tokenizer.ggml.token_type", types);
  made.Strings("tokenizer.ggml.merges", merges);
  return made;
}

TEST(GgufTokenizer, ByteLevelKindsGiveTheIdsOfTheTokenizersTheyWereConvertedFrom) {
  for (const auto& [name, pre] :
       {std::pair("gpt2", "gpt-2"), std::pair("llama3", "llama-bpe"), std::pair("qwen", "qwen2"),
        std::pair("qwen", "deepseek-r1-qwen"), std::pair("deepseek", "deepseek-v3"),
        std::pair("command", "command-r"), std::pair("tekken", "tekken"),
        std::pair("o200k", "gpt-4o"), std::pair("kimi", "kimi-k2")}) {
    SCOPED_TRACE(absl::StrCat(name, " as ", pre));
    const auto tokenizer = TokenizerOf(Converted(name, pre));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string& line :
         ReadLinesOrFail(GoldenPath(TokenizerFolder(name) + "cases.jsonl"))) {
      const json one = json::parse(line);
      if (one["add_special_tokens"].get<bool>()) continue;
      const auto text = one["text"].get<std::string>();
      const Ids ids = EncodeOrFail(**tokenizer, text);
      EXPECT_EQ(ids, one["ids"].get<Ids>()) << text;
      if (one.contains("decoded_skip_special")) {
        EXPECT_EQ((*tokenizer)->Decode(ids, true), one["decoded_skip_special"].get<std::string>());
      }
    }
  }
}

TEST(GgufTokenizer, EachNameCutsTextsAsHuggingFacesLibraryDoes) {
  const json texts = json::parse(ReadFileOrFail(GoldenPath("tokenizers/gguf_files/texts.json")));
  size_t names = 0;
  for (const std::string& line :
       ReadLinesOrFail(GoldenPath("tokenizers/gguf_files/pieces.jsonl"))) {
    const json group = json::parse(line);
    for (const json& name : group["pre"]) {
      ++names;
      SCOPED_TRACE(name.dump());
      const GgufPreTokenizer* row = FindGgufPreTokenizer(name.get<std::string>());
      ASSERT_NE(row, nullptr);
      const auto pre = MakeGgufPreTokenizer(*row);
      ASSERT_TRUE(pre.ok()) << pre.status();
      for (size_t i = 0; i < texts.size(); ++i) {
        PreTokenized cut;
        cut.text = texts[i].get<std::string>();
        cut.max_bytes = MaxGrownBytes(cut.text.size());
        cut.pieces.push_back({0, static_cast<uint32_t>(cut.text.size())});
        ASSERT_TRUE((*pre)->Apply(&cut).ok());
        std::vector<size_t> bytes;
        for (const TextRange& piece : cut.pieces) {
          // Each byte is a character by now.
          const std::string_view text = piece.Of(cut.text);
          bytes.push_back(static_cast<size_t>(
              std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; })));
        }
        EXPECT_EQ(bytes, group["texts"][i].get<std::vector<size_t>>()) << texts[i];
      }
    }
  }
  EXPECT_EQ(names, GgufPreTokenizerNames().size());
}

MadeGguf ByteLevel(const std::string& pre = "llama-bpe") {
  return MadeGguf()
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", pre)
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<think>"})
      .Ints("tokenizer.ggml.token_type", {1, 1, 1, 3, 4})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .Uint("tokenizer.ggml.bos_token_id", 3);
}

TEST(GgufTokenizer, AddsBosWhereTheFileSaysSo) {
  for (const bool adds : {false, true}) {
    const auto tokenizer = TokenizerOf(ByteLevel().Bool("tokenizer.ggml.add_bos_token", adds));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(EncodeOrFail(**tokenizer, "ab<think>", true), adds ? (Ids{3, 2, 4}) : (Ids{2, 4}));
    EXPECT_EQ((*tokenizer)->Decode(Ids{3, 2, 4}, true), "ab<think>");
  }
}

TEST(GgufTokenizer, AddsBosAsTheKindDoesWhereTheFileDoesNotSay) {
  for (const auto& [pre, adds] : std::map<std::string, bool>{{"llama-bpe", true},
                                                             {"tekken", true},
                                                             {"falcon3", true},
                                                             {"pixtral", true},
                                                             {"qwen2", false},
                                                             {"gpt-2", false},
                                                             {"default", false},
                                                             {"deepseek-v3", false}}) {
    const auto tokenizer = TokenizerOf(ByteLevel(pre));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(EncodeOrFail(**tokenizer, "ab", true), adds ? (Ids{3, 2}) : (Ids{2})) << pre;
  }
}

TEST(GgufTokenizer, AFileWithoutTheNameOfItsSplitIsCutAsDefault) {
  const auto absent = TokenizerOf(Converted("gpt2", ""));
  const auto named = TokenizerOf(Converted("gpt2", "default"));
  const auto other = TokenizerOf(Converted("gpt2", "gpt-2"));
  ASSERT_TRUE(absent.ok() && named.ok() && other.ok()) << absent.status();
  bool differs = false;
  const json texts = json::parse(ReadFileOrFail(GoldenPath("tokenizers/gguf_files/texts.json")));
  for (const json& text : texts) {
    const Ids ids = EncodeOrFail(**absent, text.get<std::string>());
    EXPECT_EQ(ids, EncodeOrFail(**named, text.get<std::string>())) << text;
    differs = differs || ids != EncodeOrFail(**other, text.get<std::string>());
  }
  EXPECT_TRUE(differs);
}

TEST(GgufTokenizer, WholeWordsAreTakenWhereTheKindDoesSo) {
  for (const auto& [pre, whole] : std::map<std::string, bool>{{"llama-bpe", true},
                                                              {"tekken", true},
                                                              {"dbrx", false},
                                                              {"smaug-bpe", false},
                                                              {"qwen2", false}}) {
    const auto tokenizer =
        TokenizerOf(MadeGguf()
                        .String("tokenizer.ggml.model", "gpt2")
                        .String("tokenizer.ggml.pre", pre)
                        .Strings("tokenizer.ggml.tokens", {"a", "b", "c", "ab", "abc"})
                        .Strings("tokenizer.ggml.merges", {"a b"}));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(EncodeOrFail(**tokenizer, "abc"), whole ? (Ids{4}) : (Ids{3, 2})) << pre;
  }
}

// A vocabulary of SentencePiece's kind: "<unk>", "<s>", "</s>" and then these.
MadeGguf Pieces(std::vector<std::string> texts, std::vector<float> scores,
                std::vector<int32_t> kinds) {
  texts.insert(texts.begin(), {"<unk>", "<s>", "</s>"});
  scores.insert(scores.begin(), {0, 0, 0});
  kinds.insert(kinds.begin(), {2, 3, 3});
  return MadeGguf()
      .String("tokenizer.ggml.model", "llama")
      .Strings("tokenizer.ggml.tokens", texts)
      .Floats("tokenizer.ggml.scores", scores)
      .Ints("tokenizer.ggml.token_type", kinds)
      .Uint("tokenizer.ggml.bos_token_id", 1);
}

TEST(GgufTokenizer, MergesOfScoresComeHighestFirst) {
  const auto tokenizer = TokenizerOf(Pieces({"<0x61>", "a", "b", "ab", "aab", "\u2581"},
                                            {0, -9, -9, -2, -1, -9}, {6, 1, 1, 1, 1, 1})
                                         .Bool("tokenizer.ggml.add_space_prefix", false));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->kind(), "BPE with byte fallback");
  EXPECT_THAT(EncodeOrFail(**tokenizer, "aab", true), ElementsAre(1, 7));
  EXPECT_THAT(EncodeOrFail(**tokenizer, "b ab"), ElementsAre(5, 8, 6));
  EXPECT_THAT(EncodeOrFail(**tokenizer, "axyb"), ElementsAre(4, 0, 5));
}

TEST(GgufTokenizer, NoBlankIsPutBehindAnAddedToken) {
  const auto tokenizer = ReadGgufTokenizer(GoldenPath("tokenizers/gguf_files/spm.gguf"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const std::string& line : ReadLinesOrFail(GoldenPath("tokenizers/gguf_files/spm.jsonl"))) {
    const json one = json::parse(line);
    const auto text = one["text"].get<std::string>();
    const Ids ids = EncodeOrFail(**tokenizer, text);
    EXPECT_EQ(ids, one["ids"].get<Ids>()) << text;
    EXPECT_EQ((*tokenizer)->Decode(ids, false), one["decoded"].get<std::string>()) << text;
  }
}

TEST(GgufTokenizer, ATextBehindTheTokenThatBeginsTextsIsAText) {
  const auto tokenizer =
      TokenizerOf(Pieces({"a", "\u2581", "\u2581a", "[T]"}, {-2, -3, -1, 0}, {1, 1, 1, 3}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(EncodeOrFail(**tokenizer, "a", true), ElementsAre(1, 5));
  EXPECT_THAT(EncodeOrFail(**tokenizer, "<s>a"), ElementsAre(1, 5));
  EXPECT_THAT(EncodeOrFail(**tokenizer, "<s>a</s><s>a"), ElementsAre(1, 5, 2, 1, 5));
  EXPECT_THAT(EncodeOrFail(**tokenizer, "a[T]a"), ElementsAre(5, 6, 3));
  EXPECT_THAT(EncodeOrFail(**tokenizer, "a[T] a"), ElementsAre(5, 6, 5));
}

TEST(GgufTokenizer, BlanksOfAnAddedTokenAreFoundAsTheyAre) {
  // As the converter writes Gemma's.
  const auto tokenizer =
      TokenizerOf(Pieces({"a", "\u2581", "  ", "\u2581a"}, {-2, -3, 0, -1}, {1, 1, 4, 1})
                      .Bool("tokenizer.ggml.add_space_prefix", false));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Ids ids = EncodeOrFail(**tokenizer, "a  a a");
  EXPECT_THAT(ids, ElementsAre(3, 5, 3, 6));
  EXPECT_EQ((*tokenizer)->Decode(ids, true), "a  a a");
}

TEST(GgufTokenizer, Phi3sTokensTakeTheSpaceBehindThem) {
  for (const std::string architecture : {"phi3", "llama"}) {
    const bool takes = architecture == "phi3";
    const auto tokenizer = TokenizerOf(Pieces({"<|endoftext|>", "<|end|>", "<0x0A>", "a", "\u2581"},
                                              {0, 0, 0, -1, -2}, {3, 3, 6, 1, 1})
                                           .String("general.architecture", architecture)
                                           .Bool("tokenizer.ggml.add_space_prefix", false));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(EncodeOrFail(**tokenizer, "a<|end|>\na").size(), takes ? 3 : 4);
    EXPECT_EQ(EncodeOrFail(**tokenizer, "a</s>\na").size(), takes ? 3 : 4);
    EXPECT_EQ(EncodeOrFail(**tokenizer, "a<|endoftext|>\na").size(), 4);
    EXPECT_EQ(EncodeOrFail(**tokenizer, "a<s>\na").size(), 4);
  }
}

TEST(GgufTokenizer, BehindPhi3sTokensTextsBeginWithABlank) {
  for (const std::string architecture : {"phi3", "llama"}) {
    const auto tokenizer =
        TokenizerOf(Pieces({"<|user|>", "a", "\u2581", "\u2581a"}, {0, -2, -3, -1}, {3, 1, 1, 1})
                        .String("general.architecture", architecture));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_THAT(EncodeOrFail(**tokenizer, "<|user|>a"),
                ElementsAre(3, architecture == "phi3" ? 6 : 4));
  }
}

TEST(GgufTokenizer, RefusesWhatIsWrongOrUnknownAndNamesIt) {
  const auto gpt2 = [](const std::vector<std::string>& tokens, const char* pre = "gpt-2") {
    return MadeGguf()
        .String("tokenizer.ggml.model", "gpt2")
        .String("tokenizer.ggml.pre", pre)
        .Strings("tokenizer.ggml.tokens", tokens);
  };
  EXPECT_THAT(Problem(MadeGguf()), HasSubstr("no tokenizer"));
  EXPECT_THAT(Problem(MadeGguf().String("tokenizer.ggml.model", "gpt2")),
              HasSubstr("\"tokenizer.ggml.tokens\" is not there"));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "bert")
                          .Strings("tokenizer.ggml.tokens", {"a"})),
              HasSubstr("\"bert\""));
  for (const char* pre : {"new-one", "gemma4", "jina-v2-code", "whitespace", "sarvam-moe"}) {
    EXPECT_THAT(Problem(gpt2({"a"}, pre)),
                HasSubstr(absl::StrCat("key \"tokenizer.ggml.pre\" \"", pre, "\"")));
  }
  EXPECT_THAT(Problem(gpt2({"a", "a"})),
              AllOf(HasSubstr("\"tokenizer.ggml.tokens\""), HasSubstr("twice")));
  EXPECT_THAT(Problem(gpt2({"\xff"})), HasSubstr("no UTF-8"));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "llama")
                          .Strings("tokenizer.ggml.tokens", {"a"})),
              HasSubstr("scores"));
  EXPECT_THAT(Problem(gpt2({"a", "b", "ab"})),
              HasSubstr("\"tokenizer.ggml.merges\" is missing or empty, and token 2"));
  EXPECT_THAT(Problem(gpt2({"a", "b", "ab"}).Strings("tokenizer.ggml.merges", {"ab"})),
              HasSubstr("merge 0 of key \"tokenizer.ggml.merges\""));
  EXPECT_THAT(Problem(gpt2({"a", "b", "ab"}).Strings("tokenizer.ggml.merges", {"a b", "a c"})),
              AllOf(HasSubstr("\"tokenizer.ggml.merges\""), HasSubstr("entry 1")));
  EXPECT_THAT(Problem(ByteLevel()
                          .Bool("tokenizer.ggml.add_bos_token", true)
                          .Bool("tokenizer.ggml.add_eos_token", true)
                          .Uint("tokenizer.ggml.eos_token_id", 99)),
              HasSubstr("eos_token_id"));
}

}  // namespace
}  // namespace strata
