#include "common/checkpoint/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/block_formats.h"
#include "common/status.h"
#include "tests/common/checkpoint/gguf_testing.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/common/checkpoint/made_gguf.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::ExpectTheSameModel;
using testing::GoldenPath;
using ::testing::HasSubstr;
using testing::MadeGguf;
using testing::TempFolder;

std::string Problem(const MadeGguf& made) {
  TempFolder folder;
  folder.Write("m.gguf", made.File());
  return std::string(OpenCheckpoint(folder.File("m.gguf")).status().message());
}

TEST(GgufModel, GivesTheModelThatConfigJsonGives) {
  for (const char* type : {"f32", "f16", "q8_0", "q4_0"}) {
    const auto gguf = OpenCheckpoint(GoldenPath(std::string("gguf/llama-") + type + ".gguf"));
    const auto hf = OpenCheckpoint(GoldenPath("models/llama"));
    ASSERT_TRUE(gguf.ok() && hf.ok()) << gguf.status() << hf.status();
    ExpectTheSameModel(gguf->spec, hf->spec);
    EXPECT_TRUE(gguf->spec.layers[0].attention.qk_rows_in_pairs);
    EXPECT_FALSE(gguf->whole_folder);
    for (const TensorEntry& tensor : hf->tensors) {
      const TensorEntry* found = gguf->Find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
      EXPECT_EQ(found->bytes, TensorBytes(found->dtype, found->shape));
    }
    EXPECT_EQ(gguf->tensors.size(), hf->tensors.size());
  }
}

TEST(GgufModel, RopeFreqsScaleAsLlama3Does) {
  const auto gguf = OpenCheckpoint(GoldenPath("gguf/llama31-q8_0.gguf"));
  const auto hf = OpenCheckpoint(GoldenPath("models/llama31"));
  ASSERT_TRUE(gguf.ok() && hf.ok()) << gguf.status() << hf.status();
  ExpectTheSameModel(gguf->spec, hf->spec);
  const RopeSpec& rope = gguf->spec.layers[0].attention.rope;
  EXPECT_EQ(rope.divisors.size(), rope.rotary_dim / 2);
  const std::vector<float> a = MakeRotaryTables(rope, 64);
  const std::vector<float> b = MakeRotaryTables(hf->spec.layers[0].attention.rope, 64);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 1e-5) << i;
  }
  EXPECT_EQ(gguf->Find("rope_freqs.weight"), nullptr);
}

TEST(GgufModel, OpensMadeUpFilesTiedOrNot) {
  TempFolder folder;
  folder.Write("m.gguf", MadeGguf::SmallLlama().File());
  auto checkpoint = OpenCheckpoint(folder.File("m.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->spec.tied_head);
  EXPECT_EQ(checkpoint->spec.vocab, 8);
  EXPECT_EQ(checkpoint->spec.layers[0].attention.head_dim, 32);
  EXPECT_EQ(checkpoint->spec.layers[0].attention.kv_heads, 2);
  EXPECT_EQ(checkpoint->path, folder.path());
  EXPECT_THAT(checkpoint->weight_files, ElementsAre("m.gguf"));

  folder.Write(
      "m.gguf",
      MadeGguf::SmallLlama(8).Tensor("output.weight", 0, {8, 64}, std::string(2048, 'o')).File());
  checkpoint = OpenCheckpoint(folder.File("m.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_FALSE(checkpoint->spec.tied_head);
  EXPECT_EQ(checkpoint->Find("lm_head.weight")->shape, (std::vector<uint64_t>{8, 64}));
  EXPECT_EQ(checkpoint->Find("model.embed_tokens.weight")->dtype, Dtype::kQ8_0);
}

TEST(GgufModel, StopsAtEveryEndThatTheFileNames) {
  TempFolder folder;
  folder.Write("m.gguf", MadeGguf::SmallLlama()
                             .Uint("tokenizer.ggml.bos_token_id", 1)
                             .Uint("tokenizer.ggml.eos_token_id", 2)
                             .Uint("tokenizer.ggml.eot_token_id", 5)
                             .Uint("tokenizer.ggml.eom_token_id", 2)
                             .File());
  const auto checkpoint = OpenCheckpoint(folder.File("m.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->spec.bos_id, 1);
  EXPECT_THAT(checkpoint->spec.eos_ids, ElementsAre(2, 5));
}

TEST(GgufModel, StopsAtTokensWhoseTextEndsATurn) {
  const auto ends = [](const std::string& other) {
    TempFolder folder;
    folder.Write("m.gguf",
                 MadeGguf::SmallLlama()
                     .Uint("tokenizer.ggml.eos_token_id", 2)
                     .Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "<|endoftext|>", "a",
                                                        "<|end|>", other, "b", "<end_of_turn>"})
                     .Ints("tokenizer.ggml.token_type", {3, 3, 3, 1, 3, 4, 3, 1})
                     .File());
    const auto checkpoint = OpenCheckpoint(folder.File("m.gguf"));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? checkpoint->spec.eos_ids : std::vector<uint32_t>{};
  };
  EXPECT_THAT(ends("<|user|>"), ElementsAre(2, 4));
  EXPECT_THAT(ends("<|eot_id|>"), ElementsAre(2, 4, 5));
  EXPECT_THAT(ends("<|call|>"), ElementsAre(2, 4, 5));
}

TEST(GgufModel, WhereCallsAndReturnsEndAnAnswerTheEndOfAPartDoesNot) {
  TempFolder folder;
  folder.Write("m.gguf", MadeGguf::SmallLlama()
                             .Uint("tokenizer.ggml.eos_token_id", 2)
                             .Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "<|return|>", "a",
                                                                "<|end|>", "<|call|>", "b", "c"})
                             .Ints("tokenizer.ggml.token_type", {3, 3, 3, 1, 3, 3, 1, 1})
                             .File());
  const auto checkpoint = OpenCheckpoint(folder.File("m.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->spec.eos_ids, ElementsAre(2, 5));
}

TEST(GgufModel, AFolderHasOneModel) {
  TempFolder folder;
  folder.Write("a.gguf", MadeGguf::SmallLlama().File());
  folder.Write("mmproj-a.gguf", "not looked at");
  folder.Write("a-mmproj-f16.gguf", "not looked at");
  const auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->whole_folder);
  folder.Write("b.gguf", MadeGguf::SmallLlama().File());
  const absl::Status status = OpenCheckpoint(folder.path()).status();
  EXPECT_EQ(ReasonOf(status), "SEVERAL_MODELS");
  EXPECT_THAT(Describe(status), HasSubstr("a.gguf"));
}

// The small llama in two parts.
void WriteParts(const TempFolder& folder, uint32_t count = 2) {
  MadeGguf first;
  first.String("general.architecture", "llama")
      .Uint("split.no", 0)
      .Uint("split.count", count)
      .Uint("split.tensors.count", 2);
  folder.Write("m-00001-of-00002.gguf",
               first.Tensor("output_norm.weight", 0, {64}, std::string(256, 'n')).File());
  folder.Write("m-00002-of-00002.gguf",
               MadeGguf()
                   .Uint("split.no", 1)
                   .Uint("split.count", count)
                   .Tensor("token_embd.weight", 0, {8, 64}, std::string(2048, 'e'))
                   .File());
}

TEST(GgufModel, PartsAreOneModel) {
  TempFolder folder;
  folder.Write("m-00001-of-00002.gguf",
               MadeGguf::SmallLlama().Uint("split.no", 0).Uint("split.count", 2).File());
  EXPECT_EQ(ReasonOf(OpenCheckpoint(folder.path()).status()), "MISSING_FILE");
  folder.Write("m-00002-of-00002.gguf",
               MadeGguf()
                   .Uint("split.no", 1)
                   .Uint("split.count", 2)
                   .Tensor("output.weight", 0, {8, 64}, std::string(2048, 'o'))
                   .File());
  for (const std::string& path : {folder.path(), folder.File("m-00002-of-00002.gguf")}) {
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_THAT(checkpoint->weight_files,
                ElementsAre("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"));
    EXPECT_EQ(checkpoint->Find("lm_head.weight")->file, "m-00002-of-00002.gguf");
  }
}

TEST(GgufModel, PartsThatDisagreeAreRefused) {
  TempFolder folder;
  WriteParts(folder, 3);
  EXPECT_THAT(std::string(OpenCheckpoint(folder.path()).status().message()),
              HasSubstr("say part 1 of 3, its name says part 1 of 2"));
  WriteParts(folder);
  folder.Write("m-00002-of-00002.gguf",
               MadeGguf().Uint("split.no", 1).Uint("split.count", 2).File());
  EXPECT_THAT(std::string(OpenCheckpoint(folder.path()).status().message()),
              HasSubstr("\"split.tensors.count\" is 2, and the parts have 1"));
}

TEST(GgufModel, NamesOfModels) {
  EXPECT_EQ(GgufModelName("a.gguf"), "a");
  EXPECT_EQ(GgufModelName("a-00001-of-00003.gguf"), "a");
  EXPECT_EQ(GgufModelName("a-00001-of-0003.gguf"), "a-00001-of-0003");
  EXPECT_EQ(GgufModelName("folder"), "folder");
}

TEST(GgufModel, RefusesWhatIsWrongOrUnknownAndNamesIt) {
  EXPECT_THAT(Problem(MadeGguf()), HasSubstr("general.architecture"));
  EXPECT_THAT(Problem(MadeGguf().String("general.architecture", "mamba")), HasSubstr("\"mamba\""));
  EXPECT_THAT(Problem(MadeGguf().String("general.architecture", "llama")),
              HasSubstr("m.gguf: there is no tensor \"token_embd.weight\""));
  EXPECT_THAT(Problem(MadeGguf::SmallLlama().Uint("llama.rope.dimension_count", 16)),
              HasSubstr("\"llama.rope.dimension_count\" 16"));
  EXPECT_THAT(Problem(MadeGguf::SmallLlama().Uint("llama.attention.key_length", 64)),
              HasSubstr("the configuration needs [128, 64] (by head_dim, "
                        "hidden_size, num_attention_heads)"));
  for (const char* name :
       {"blk.0.mystery.weight", "blk.00.attn_q.weight", "blk.+0.attn_q.weight"}) {
    EXPECT_THAT(Problem(MadeGguf::SmallLlama().Tensor(name, 0, {1}, "1234")),
                HasSubstr("\"" + std::string(name) + "\""));
  }
  EXPECT_THAT(Problem(MadeGguf::SmallLlama().Tensor("blk.0.attn_q_norm.weight", 0, {32},
                                                    std::string(128, 'x'))),
              HasSubstr("q_norm"));
  EXPECT_THAT(
      Problem(MadeGguf::SmallLlama().Tensor("output_norm.weight", 0, {64}, std::string(256, 'x'))),
      HasSubstr("\"model.norm.weight\" is in"));
  EXPECT_THAT(
      Problem(MadeGguf::SmallLlama().Tensor("rope_freqs.weight", 0, {16}, std::string(64, '\0'))),
      HasSubstr("divisors"));
}

TEST(GgufModel, KeysOfAttentionAndRotationThatNothingLooksAtAreRefused) {
  for (const char* key : {"llama.attention.output_scale", "llama.rope.dimension_sections"}) {
    EXPECT_THAT(Problem(MadeGguf::SmallLlama().Float(key, 1)),
                HasSubstr("\"" + std::string(key) + "\""));
  }
  for (const char* key : {"llama.attention.key_length_swa", "llama.attention.value_length_swa",
                          "llama.rope.dimension_count_swa"}) {
    EXPECT_THAT(Problem(MadeGguf::SmallLlama().Uint(key, 16)),
                HasSubstr("\"" + std::string(key) + "\""));
  }
  TempFolder folder;
  folder.Write("m.gguf", MadeGguf::SmallLlama()
                             .Uint("llama.attention.key_length_swa", 32)
                             .Float("llama.attention.layer_norm_epsilon", 1e-5f)
                             .Uint("llama.anything.else", 1)
                             .File());
  const auto checkpoint = OpenCheckpoint(folder.File("m.gguf"));
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
}

}  // namespace
}  // namespace strata
