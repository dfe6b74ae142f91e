// Every line of the golden families that the tree has, and the bundled model's prompts.
#include "tests/golden.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "gtest/gtest.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {
namespace {

using Json = nlohmann::json;
using testing::GoldenPath;
using testing::ReadFileOrFail;
using testing::ReadLinesOrFail;

std::unique_ptr<Tokenizer> Load(const std::string& path) {
  auto tokenizer = ParseTokenizer(ReadFileOrFail(path));
  EXPECT_TRUE(tokenizer.ok()) << path << ": " << Describe(tokenizer.status());
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

class GoldenTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Folder() const { return GoldenPath(std::string("tokenizers/") + GetParam()); }
};

TEST_P(GoldenTokenizer, EncodesAndDecodesEveryCase) {
  const auto tokenizer = Load(Folder() + "/tokenizer.json");
  ASSERT_NE(tokenizer, nullptr);
  const auto lines = ReadLinesOrFail(Folder() + "/cases.jsonl");
  ASSERT_GT(lines.size(), 100u);
  for (const std::string& line : lines) {
    const Json c = Json::parse(line);
    const auto wanted = c["ids"].get<std::vector<uint32_t>>();
    const auto ids = tokenizer->Encode(c["text"].get<std::string>(), c["add_special_tokens"]);
    ASSERT_TRUE(ids.ok()) << line << ": " << Describe(ids.status());
    EXPECT_EQ(*ids, wanted) << line;
    const auto text = c["text"].get<std::string>();
    const size_t per_id = tokenizer->max_bytes_per_id();
    EXPECT_TRUE(per_id == 0 || text.size() <= wanted.size() * per_id) << line;
    // Half of them is enough to see that there are more.
    const auto some = tokenizer->EncodeUpTo(text, c["add_special_tokens"], wanted.size() / 2);
    ASSERT_TRUE(some.ok()) << line;
    EXPECT_GT(some->size() + (wanted.empty() ? 1 : 0), wanted.size() / 2) << line;
    if (c.contains("decoded")) {
      EXPECT_EQ(tokenizer->Decode(wanted, false), c["decoded"].get<std::string>()) << line;
      EXPECT_EQ(tokenizer->Decode(wanted, true), c["decoded_skip_special"].get<std::string>())
          << line;
    }
  }
}

TEST_P(GoldenTokenizer, StreamsAllTextAndNoneTooEarly) {
  const auto tokenizer = Load(Folder() + "/tokenizer.json");
  ASSERT_NE(tokenizer, nullptr);
  const auto lines = ReadLinesOrFail(Folder() + "/stream.jsonl");
  ASSERT_GT(lines.size(), 40u);
  for (const std::string& line : lines) {
    const Json c = Json::parse(line);
    const auto context = c["context_ids"].get<std::vector<uint32_t>>();
    const auto ids = c["ids"].get<std::vector<uint32_t>>();
    std::vector<uint32_t> all = context;
    all.insert(all.end(), ids.begin(), ids.end());
    const std::string whole = tokenizer->Decode(all, c["skip_special_tokens"]);
    EXPECT_TRUE(whole.ends_with(c["text"].get<std::string>())) << line;
    if (c.value("spoiled_run", false)) {
      continue;  // A stream says what was good of it before: stages_test.cc.
    }
    const auto stream = tokenizer->NewStream(context, c["skip_special_tokens"]);
    std::string said;
    std::string sayable;
    size_t i = 0;
    for (const uint32_t id : ids) {
      said += stream->Add(id);
      sayable += c["pieces"][i++].get<std::string>();
      // Text is certain as soon as its bytes are: nothing is held back either.
      EXPECT_EQ(said, sayable) << line;
    }
    said += stream->Finish();
    EXPECT_EQ(said, c["text"].get<std::string>()) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTokenizer,
                         ::testing::Values("bert", "cl100k", "command", "deepseek", "deepseek_llm",
                                           "falcon", "gemma", "gpt2", "gpt2_prefix", "kimi",
                                           "llama2", "llama2_metaspace", "llama3",
                                           "metaspace_always", "metaspace_never", "o200k", "phi3",
                                           "possessive", "qwen", "tekken", "tiktoken", "unigram",
                                           "unigram_nfkc", "word_ends"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GoldenTokenizers, SayWhatKindTheyAre) {
  const std::pair<const char*, const char*> kinds[] = {{"gpt2", "byte-level BPE"},
                                                       {"llama3", "byte-level BPE"},
                                                       {"llama2", "BPE with byte fallback"},
                                                       {"gemma", "BPE with byte fallback"},
                                                       {"unigram", "Unigram"}};
  for (const auto& [name, kind] : kinds) {
    const auto tokenizer = Load(GoldenPath(std::string("tokenizers/") + name + "/tokenizer.json"));
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->kind(), kind) << name;
  }
  const std::string folder = GoldenPath("tokenizers/sentencepiece_files/");
  EXPECT_EQ((*ParseSentencePiece(ReadFileOrFail(folder + "llama.model"), "", ""))->kind(),
            "SentencePiece BPE");
  EXPECT_EQ((*ParseSentencePiece(ReadFileOrFail(folder + "unigram.model"), "", ""))->kind(),
            "SentencePiece Unigram");
}

class GoldenTiktoken : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTiktoken, EncodesAndDecodesEveryCase) {
  const std::string folder = GoldenPath("tokenizers/tiktoken_files/");
  const std::string name = GetParam();
  const std::string config =
      name == "qwen.tiktoken" ? "" : ReadFileOrFail(folder + name + ".config.json");
  const auto tokenizer = ParseTiktoken(ReadFileOrFail(folder + name), name, config);
  ASSERT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
  const auto lines = ReadLinesOrFail(folder + name + ".jsonl");
  ASSERT_GT(lines.size(), 100u);
  for (const std::string& line : lines) {
    const Json c = Json::parse(line);
    const auto wanted = c["ids"].get<std::vector<uint32_t>>();
    const auto ids = (*tokenizer)->Encode(c["text"].get<std::string>(), true);
    ASSERT_TRUE(ids.ok()) << line << ": " << Describe(ids.status());
    EXPECT_EQ(*ids, wanted) << line;
    EXPECT_EQ((*tokenizer)->Decode(wanted, false), c["decoded"].get<std::string>()) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTiktoken,
                         ::testing::Values("cl100k_base.tiktoken", "o200k_base.tiktoken",
                                           "qwen.tiktoken", "tiktoken.model"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

class GoldenSentencePiece : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Path(const char* kind) const {
    return GoldenPath(std::string("tokenizers/sentencepiece_files/") + GetParam() + kind);
  }
};

TEST_P(GoldenSentencePiece, EncodesDecodesAndStreamsEveryCase) {
  const auto tokenizer = ParseSentencePiece(ReadFileOrFail(Path(".model")), "", "");
  ASSERT_TRUE(tokenizer.ok()) << Describe(tokenizer.status());
  const auto lines = ReadLinesOrFail(Path(".jsonl"));
  ASSERT_GT(lines.size(), 500u);
  for (const std::string& line : lines) {
    const Json c = Json::parse(line);
    const auto wanted = c["ids"].get<std::vector<uint32_t>>();
    const auto decoded = c["decoded"].get<std::string>();
    if (c.contains("text")) {
      const auto ids = (*tokenizer)->Encode(c["text"].get<std::string>(), false);
      ASSERT_TRUE(ids.ok()) << line << ": " << Describe(ids.status());
      EXPECT_EQ(*ids, wanted) << line;
    }
    EXPECT_EQ((*tokenizer)->Decode(wanted, true), decoded) << line;
    const auto stream = (*tokenizer)->NewStream({}, true);
    std::string said;
    for (const uint32_t id : wanted) {
      said += stream->Add(id);
      EXPECT_TRUE(decoded.starts_with(said)) << line;
    }
    EXPECT_EQ(said + stream->Finish(), decoded) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenSentencePiece,
                         ::testing::Values("llama", "gemma", "bpe", "unigram", "unigram_bytes"),
                         [](const auto& info) { return std::string(info.param); });

TEST(BundledModel, EncodesEveryPrompt) {
  const auto tokenizer = Load(testing::SourcePath("models/recall/tokenizer.json"));
  ASSERT_NE(tokenizer, nullptr);
  const Json cases = Json::parse(ReadFileOrFail(testing::SourcePath("models/recall/cases.json")));
  ASSERT_EQ(cases.size(), 200u);
  for (const Json& c : cases) {
    const auto ids = tokenizer->Encode(c["prompt"].get<std::string>(), false);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, c["prompt_ids"].get<std::vector<uint32_t>>()) << c["name"];
    EXPECT_EQ(tokenizer->Decode(c["greedy_ids"].get<std::vector<uint32_t>>(), true),
              c["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace strata
