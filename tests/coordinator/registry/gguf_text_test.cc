#include "coordinator/registry/gguf_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status.h"
#include "coordinator/registry/digest_checkpoint.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/common/checkpoint/made_gguf.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::GoldenPath;
using ::testing::HasSubstr;
using testing::MadeGguf;
using testing::TempFolder;

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
  const auto gguf = FindManifestGguf(*again);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(*gguf, folder.File("m.gguf"));

  folder.Write("m.gguf", made.File() + "more");
  EXPECT_EQ(ReasonOf(FindManifestGguf(*again).status()), "MODEL_CHANGED");
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
  EXPECT_EQ(FindManifestGguf(*with).value_or("?"), "");
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
