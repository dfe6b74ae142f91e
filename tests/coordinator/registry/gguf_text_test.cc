#include "coordinator/registry/gguf_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "common/status.h"
#include "coordinator/registry/digest_checkpoint.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/common/checkpoint/made_gguf.h"
#include "tests/golden.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::GoldenPath;
using ::testing::HasSubstr;
using testing::MadeGguf;
using testing::TempFolder;

absl::StatusOr<json> Tokenizer(const MadeGguf& made) {
  const std::string file = made.File();
  const auto header = ParseGgufHeader(file, file.size(), "m.gguf");
  EXPECT_TRUE(header.ok()) << header.status();
  ASSIGN_OR_RETURN(const std::string text, GgufTokenizerJson(*header));
  return json::parse(text);
}
std::string Problem(const MadeGguf& made) { return Describe(Tokenizer(made).status()); }

// A byte-level tokenizer.json of the golden ones, as llama.cpp's converter writes it.
MadeGguf Converted(const std::string& name, const std::string& pre) {
  const json source =
      json::parse(testing::ReadFileOrFail(GoldenPath("tokenizers/" + name + "/tokenizer.json")));
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
  made.String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", pre);
  made.Strings("tokenizer.ggml.tokens", list).Ints("tokenizer.ggml.token_type", types);
  made.Strings("tokenizer.ggml.merges", merges);
  return made;
}

TEST(GgufTokenizer, ByteLevelKindsEncodeAndDecodeAsTheirTokenizerJsonDoes) {
  for (const auto& [name, pre] : {std::pair("gpt2", "gpt-2"), std::pair("llama3", "llama-bpe")}) {
    SCOPED_TRACE(name);
    const auto made = Tokenizer(Converted(name, pre));
    ASSERT_TRUE(made.ok()) << made.status();
    const auto ours = ParseTokenizer(made->dump());
    const auto theirs = ParseTokenizer(
        testing::ReadFileOrFail(GoldenPath(std::string("tokenizers/") + name + "/tokenizer.json")));
    ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status() << theirs.status();
    for (const char* text :
         {"", " ", "Hello, world!", "I'll pay 12345 EUR\r\n\r\n  twice",
          "na\u00efve caf\u00e9 \u4f60\u597d", "\tfor (int i = 0; i < 10; ++i) {\n",
          "WE'RE   here's  it", "\U0001f600 <|end_of_text|> a"}) {
      const auto a = (*ours)->Encode(text, false);
      const auto b = (*theirs)->Encode(text, false);
      ASSERT_TRUE(a.ok() && b.ok());
      EXPECT_EQ(*a, *b) << text;
      EXPECT_EQ((*ours)->Decode(*a, true), (*theirs)->Decode(*b, true)) << text;
    }
  }
}

// Phi-4's and OLMo-2's; SmolLM3's; Granite's.
TEST(GgufTokenizer, NamesThatStandForTheSameCutsAreRead) {
  for (const auto& [pre, like] :
       {std::pair("dbrx", "llama-bpe"), std::pair("smaug-bpe", "llama-bpe"),
        std::pair("refact", "smollm")}) {
    const auto made = Tokenizer(Converted("llama3", pre));
    const auto other = Tokenizer(Converted("llama3", like));
    ASSERT_TRUE(made.ok() && other.ok()) << made.status() << other.status();
    EXPECT_EQ((*made)["pre_tokenizer"], (*other)["pre_tokenizer"]) << pre;
    EXPECT_FALSE((*made)["model"]["ignore_merges"].get<bool>());
  }
}

MadeGguf ByteLevel() {
  return MadeGguf()
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "llama-bpe")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<think>"})
      .Ints("tokenizer.ggml.token_type", {1, 1, 1, 3, 4})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .Uint("tokenizer.ggml.bos_token_id", 3);
}

TEST(GgufTokenizer, AddsBosWhereTheFileSaysSo) {
  for (const bool adds : {false, true}) {
    const auto made = Tokenizer(ByteLevel().Bool("tokenizer.ggml.add_bos_token", adds));
    ASSERT_TRUE(made.ok()) << made.status();
    const auto tokenizer = ParseTokenizer(made->dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto ids = (*tokenizer)->Encode("ab<think>", true);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, adds ? (std::vector<uint32_t>{3, 2, 4}) : (std::vector<uint32_t>{2, 4}));
    EXPECT_EQ((*tokenizer)->Decode(std::vector<uint32_t>{3, 2, 4}, true), "ab<think>");
  }
}

TEST(GgufTokenizer, AddsBosAsTheKindDoesWhereTheFileDoesNotSay) {
  for (const auto& [pre, adds] : std::map<std::string, bool>{
           {"llama-bpe", true}, {"tekken", true}, {"qwen2", false}, {"gpt-2", false}}) {
    const auto made = Tokenizer(MadeGguf()
                                    .String("tokenizer.ggml.model", "gpt2")
                                    .String("tokenizer.ggml.pre", pre)
                                    .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>"})
                                    .Ints("tokenizer.ggml.token_type", {1, 1, 1, 3})
                                    .Strings("tokenizer.ggml.merges", {"a b"})
                                    .Uint("tokenizer.ggml.bos_token_id", 3));
    ASSERT_TRUE(made.ok()) << made.status();
    const auto tokenizer = ParseTokenizer(made->dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto ids = (*tokenizer)->Encode("ab", true);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, adds ? (std::vector<uint32_t>{3, 2}) : (std::vector<uint32_t>{2})) << pre;
  }
}

TEST(GgufTokenizer, MergesOfScoresComeHighestFirst) {
  const auto made = Tokenizer(MadeGguf()
                                  .String("tokenizer.ggml.model", "llama")
                                  .Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "<0x61>", "a",
                                                                     "b", "ab", "aab", "\u2581"})
                                  .Floats("tokenizer.ggml.scores", {0, 0, 0, -9, -9, -2, -1, -9})
                                  .Ints("tokenizer.ggml.token_type", {2, 3, 6, 1, 1, 1, 1, 1})
                                  .Uint("tokenizer.ggml.bos_token_id", 1));
  ASSERT_TRUE(made.ok()) << made.status();
  const json& model = (*made)["model"];
  EXPECT_EQ(model["merges"], json::parse(R"([["a","ab"],["a","b"]])"));
  EXPECT_EQ(model["unk_token"], "<unk>");
  EXPECT_TRUE(model["byte_fallback"].get<bool>());
  EXPECT_EQ((*made)["normalizer"]["normalizers"][0]["type"], "Prepend");
  EXPECT_EQ((*made)["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
}

TEST(GgufTokenizer, Phi3sTokensTakeTheSpaceBehindThem) {
  for (const std::string architecture : {"phi3", "llama"}) {
    const bool takes = architecture == "phi3";
    const auto made =
        Tokenizer(MadeGguf()
                      .String("general.architecture", architecture)
                      .String("tokenizer.ggml.model", "llama")
                      .Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<|endoftext|>",
                                                         "<|end|>", "<0x0A>", "a", "\u2581"})
                      .Floats("tokenizer.ggml.scores", {0, 0, 0, 0, 0, 0, -1, -2})
                      .Ints("tokenizer.ggml.token_type", {2, 3, 3, 3, 3, 6, 1, 1})
                      .Bool("tokenizer.ggml.add_space_prefix", false));
    ASSERT_TRUE(made.ok()) << made.status();
    const auto tokenizer = ParseTokenizer(made->dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto encode = [&](const std::string& text) {
      const auto ids = (*tokenizer)->Encode(text, false);
      EXPECT_TRUE(ids.ok()) << ids.status();
      return ids.ok() ? *ids : std::vector<uint32_t>();
    };
    EXPECT_EQ(encode("a<|end|>\na").size(), takes ? 3 : 4);
    EXPECT_EQ(encode("a</s>\na").size(), takes ? 3 : 4);
    EXPECT_EQ(encode("a<|endoftext|>\na").size(), 4);
    EXPECT_EQ(encode("a<s>\na").size(), 4);
  }
}

TEST(GgufTokenizer, RefusesWhatIsWrongOrUnknownAndNamesIt) {
  EXPECT_THAT(Problem(MadeGguf()), HasSubstr("no tokenizer"));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "bert")
                          .Strings("tokenizer.ggml.tokens", {"a"})),
              HasSubstr("\"bert\""));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "gpt2")
                          .String("tokenizer.ggml.pre", "new-one")
                          .Strings("tokenizer.ggml.tokens", {"a"})),
              HasSubstr("\"new-one\""));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "gpt2")
                          .Strings("tokenizer.ggml.tokens", {"a", "a"})),
              HasSubstr("twice"));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "gpt2")
                          .Strings("tokenizer.ggml.tokens", {"\xff"})),
              HasSubstr("no UTF-8"));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "llama")
                          .Strings("tokenizer.ggml.tokens", {"a"})),
              HasSubstr("scores"));
  EXPECT_THAT(Problem(MadeGguf()
                          .String("tokenizer.ggml.model", "gpt2")
                          .String("tokenizer.ggml.pre", "gpt-2")
                          .Strings("tokenizer.ggml.tokens", {"a", "b", "ab"})),
              HasSubstr("\"tokenizer.ggml.merges\" is missing or empty, and token 2"));
  EXPECT_THAT(Problem(ByteLevel()
                          .Bool("tokenizer.ggml.add_bos_token", true)
                          .Bool("tokenizer.ggml.add_eos_token", true)
                          .Uint("tokenizer.ggml.eos_token_id", 99)),
              HasSubstr("eos_token_id"));
}

TEST(GgufCheckpoint, IsRegisteredWithTextAndReadAgain) {
  TempFolder folder;
  MadeGguf made = MadeGguf::SmallLlama(8);
  made.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "gpt-2")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f", "<s>", "</s>"})
      .Ints("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 3, 3})
      .Uint("tokenizer.ggml.bos_token_id", 6)
      .Uint("tokenizer.ggml.eos_token_id", 7)
      .String("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
  folder.Write("m.gguf", made.File());
  folder.Write("tokenizer.json", "of another model");
  const auto manifest = DigestCheckpoint(folder.File("m.gguf"), nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->path, folder.path());
  EXPECT_EQ(manifest->Source(), folder.File("m.gguf"));
  ASSERT_EQ(manifest->files.size(), 1);
  EXPECT_EQ(manifest->files[0].name, "m.gguf");
  EXPECT_TRUE(manifest->has_tokenizer);
  EXPECT_EQ(manifest->bos_token, "<s>");
  EXPECT_EQ(manifest->eos_token, "</s>");
  EXPECT_THAT(manifest->chat_template, HasSubstr("bos_token"));
  EXPECT_THAT(manifest->spec.eos_ids, ElementsAre(7));
  const auto again = ManifestFromJson(ManifestToJson(*manifest));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->tensors, manifest->tensors);
  EXPECT_TRUE(again->spec.layers[0].attention.qk_rows_in_pairs);
  const auto tokenizer = ReadManifestTokenizer(*again);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE(ParseTokenizer(*tokenizer).ok());

  folder.Write("m.gguf", made.File() + "more");
  EXPECT_EQ(ReasonOf(ReadManifestTokenizer(*again).status()), "MODEL_CHANGED");
}

TEST(GgufCheckpoint, AFoldersTokenizerComesBeforeTheFilesOwn) {
  TempFolder folder;
  folder.Write("m.gguf", MadeGguf::SmallLlama().File());
  const auto without = DigestCheckpoint(folder.path(), nullptr);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE(without->has_tokenizer);
  folder.Write("tokenizer.json", "{}");
  const auto with = DigestCheckpoint(folder.path(), nullptr);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_TRUE(with->has_tokenizer);
  EXPECT_EQ(with->Source(), folder.path());
  EXPECT_EQ(ReadManifestTokenizer(*with).value_or(""), "{}");
}

TEST(GgufCheckpoint, WeightsAreCountedAsWorkersKeepThem) {
  const auto manifest = DigestCheckpoint(GoldenPath("gguf/llama-q8_0.gguf"), nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const WeightAccount account = AccountWeights(*manifest);
  EXPECT_EQ(account.layer_format, "q8_0");
  EXPECT_EQ(account.head_format, "q8_0");
  // Hidden 64, 8 heads of 8, 2 of keys, ffn 96: int8 and a float32 for each 32 inputs; two norms.
  const uint64_t weights = 64 * 64 * 2 + 16 * 64 * 2 + 96 * 64 * 3;
  EXPECT_EQ(account.layer_bytes[0], weights + weights / 32 * 4 + 2 * 64 * 4);
}

TEST(GgufText, AFolderThatIsOneModelIsItsFile) {
  TempFolder folder;
  EXPECT_EQ(*GgufFileIn(folder.path()), "");
  MadeGguf made = MadeGguf::SmallLlama();
  made.String("tokenizer.chat_template", "{{ messages }}");
  folder.Write("m.gguf", made.File());
  folder.Write("mmproj-m.gguf", "a projector");
  EXPECT_EQ(*GgufFileIn(folder.path()), folder.File("m.gguf"));
  const auto source = ReadChatTemplate(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->source, "{{ messages }}");
  EXPECT_EQ(source->origin, folder.File("m.gguf"));
  // A template of the folder wins, as it does for `model add`.
  folder.Write("chat_template.jinja", "other");
  EXPECT_EQ(ReadChatTemplate(folder.path())->source, "other");
  folder.Remove("chat_template.jinja");
  folder.Write("n.gguf", made.File());
  EXPECT_EQ(ReasonOf(ReadChatTemplate(folder.path()).status()), "SEVERAL_MODELS");
  // Beside safetensors it is not the model.
  folder.Write("model.safetensors", "");
  EXPECT_EQ(*GgufFileIn(folder.path()), "");
  EXPECT_EQ(ReasonOf(ReadChatTemplate(folder.path()).status()), "NO_CHAT_TEMPLATE");
}

TEST(GgufText, ASplitModelIsItsFirstPart) {
  TempFolder folder;
  folder.Write("m-00002-of-00002.gguf", "second");
  EXPECT_EQ(ReasonOf(GgufFileIn(folder.path()).status()), "MISSING_FILE");
  folder.Write("m-00001-of-00002.gguf", "first");
  EXPECT_EQ(*GgufFileIn(folder.path()), folder.File("m-00001-of-00002.gguf"));
}

}  // namespace
}  // namespace strata
