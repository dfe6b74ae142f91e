#include "coordinator/registry/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/digest.h"
#include "common/random.h"
#include "common/status.h"
#include "coordinator/registry/digest_checkpoint.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::TempFolder;

ModelManifest Digest(const std::string& path) {
  auto manifest = DigestCheckpoint(path, nullptr);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  return *std::move(manifest);
}

TEST(Manifest, ComesBackFromJson) {
  for (const std::string& path :
       {testing::GoldenPath("models/llama"), testing::GoldenPath("models/llama31"),
        testing::SourcePath("models/recall")}) {
    const ModelManifest manifest = Digest(path);
    const auto back = ManifestFromJson(ManifestToJson(manifest));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->path, manifest.path);
    EXPECT_EQ(back->files, manifest.files);
    EXPECT_EQ(back->tensors, manifest.tensors);
    EXPECT_EQ(back->weights_digest, manifest.weights_digest);
    EXPECT_EQ(back->config_json, manifest.config_json);
    EXPECT_EQ(back->generation_config_json, manifest.generation_config_json);
    EXPECT_EQ(back->has_tokenizer, manifest.has_tokenizer);
    EXPECT_EQ(back->chat_template, manifest.chat_template);
    EXPECT_EQ(back->chat_template_file, manifest.chat_template_file);
    EXPECT_EQ(back->bos_token, manifest.bos_token);
    EXPECT_EQ(back->eos_token, manifest.eos_token);
    EXPECT_EQ(back->special_tokens, manifest.special_tokens);
    EXPECT_EQ(back->notes, manifest.notes);
    EXPECT_EQ(back->spec.layers.size(), manifest.spec.layers.size());
    EXPECT_EQ(back->spec.eos_ids, manifest.spec.eos_ids);
  }
}

TEST(Manifest, HasTheBundledModelsTemplateAndTokens) {
  const ModelManifest manifest = Digest(testing::SourcePath("models/recall"));
  EXPECT_TRUE(manifest.has_tokenizer);
  EXPECT_THAT(manifest.chat_template, HasSubstr("add_generation_prompt"));
  EXPECT_EQ(manifest.bos_token, "<|begin_of_text|>");
  EXPECT_EQ(manifest.eos_token, "<|eot_id|>");
  EXPECT_THAT(manifest.special_tokens,
              ElementsAre(Pair("bos_token", "<|begin_of_text|>"), Pair("eos_token", "<|eot_id|>")));
  EXPECT_FALSE(Digest(testing::GoldenPath("models/llama")).has_tokenizer);
}

// As they were stored before they said where the template is.
TEST(Manifest, FindsTheTemplatesFileWhereItIsNotSaid) {
  const ModelManifest manifest = Digest(testing::SourcePath("models/recall"));
  EXPECT_EQ(manifest.chat_template_file, "tokenizer_config.json");
  json old = json::parse(ManifestToJson(manifest));
  old.erase("chat_template_file");
  const auto back = ManifestFromJson(old.dump());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->chat_template_file, "tokenizer_config.json");
}

// The digest's text is part of every fingerprint: it must not change.
TEST(Manifest, DigestsWeightsByTheWrittenRule) {
  ManifestTensor b{"b\t\n\\", Dtype::kBF16, {2, 3}, "f", 0, 12, std::string(64, '1')};
  ManifestTensor a{"a", Dtype::kF32, {}, "g", 5, 4, std::string(64, '2')};
  const std::string text = "a\tF32\t\t" + std::string(64, '2') + "\nb\\t\\n\\\\\tBF16\t2,3\t" +
                           std::string(64, '1') + "\n";
  EXPECT_EQ(WeightsDigest({b, a}), Sha256Hex(text));
  EXPECT_EQ(WeightsDigest({a, b}), Sha256Hex(text));
  EXPECT_EQ(WeightsDigest({}), Sha256Hex(""));
}

TEST(Manifest, RefusesJsonThatDoesNotAddUp) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const json good = json::parse(ManifestToJson(Digest(folder.path())));
  const auto expect = [&](const std::string& pointer, const json& value, const char* says) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    const auto manifest = ManifestFromJson(changed.dump());
    EXPECT_EQ(manifest.status().code(), absl::StatusCode::kInvalidArgument) << pointer;
    EXPECT_THAT(std::string(manifest.status().message()), HasSubstr(says)) << pointer;
  };
  expect("/version", 2, "version");
  expect("/files", 3, "files");
  expect("/files/0/name", "../x", "plain name");
  expect("/files/0/sha256", "abc", "digest");
  expect("/files/0/bytes", -1, "bytes");
  expect("/tensors/0", 1, "not an object");
  expect("/tensors/0/dtype", "F31", "dtype");
  expect("/tensors/0/shape", {1, -1}, "shape");
  expect("/tensors/0/shape", {UINT64_MAX, 2}, "shape");
  expect("/tensors/0/file", "nowhere", "within a file");
  expect("/tensors/0/offset", UINT64_MAX, "within a file");
  expect("/tensors/0/sha256", std::string(64, '0'), "weights_digest");
  expect("/tensors/0/name", "zzz", "order");
  expect("/config_json", "{}", "model_type");
  expect("/weights_digest", "", "weights_digest");
  expect("/special_tokens", {{"bos_token"}}, "special_tokens");
  expect("/special_tokens", {{"bos_token", 1}}, "special_tokens");
  EXPECT_FALSE(ManifestFromJson("").ok());
  EXPECT_FALSE(ManifestFromJson("[]").ok());
}

TEST(Manifest, RefusesAModelWithoutItsTensors) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  ModelManifest manifest = Digest(folder.path());
  manifest.tensors.pop_back();
  manifest.weights_digest = WeightsDigest(manifest.tensors);
  EXPECT_THAT(std::string(ManifestFromJson(ManifestToJson(manifest)).status().message()),
              HasSubstr("is missing"));
}

TEST(Manifest, SurvivesRandomDamage) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const std::string good = ManifestToJson(Digest(folder.path()));
  uint32_t draw = 0;
  const auto random = [&](uint64_t below) { return Philox(17, 0, draw++) % below; };
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = good;
    damaged[random(damaged.size())] = static_cast<char>(random(128));
    const auto manifest = ManifestFromJson(damaged);
    EXPECT_TRUE(manifest.ok() || !manifest.status().message().empty());
  }
}

TEST(ReadManifestFile, GivesWhatWasRegisteredOrSaysThatItChanged) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  folder.Write("tokenizer.json", "{\"a\":1}");
  ModelManifest manifest = Digest(folder.path());
  manifest.model = "m";
  EXPECT_EQ(*ReadManifestFile(manifest, "tokenizer.json"), "{\"a\":1}");
  EXPECT_EQ(ReadManifestFile(manifest, "none.json").status().code(), absl::StatusCode::kNotFound);
  folder.Write("tokenizer.json", "{\"a\":2}");
  const auto changed = ReadManifestFile(manifest, "tokenizer.json");
  EXPECT_EQ(changed.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(changed.status()), "MODEL_CHANGED");
  EXPECT_THAT(DetailOf(changed.status()).hint(), HasSubstr("model add"));
  folder.Remove("tokenizer.json");
  EXPECT_EQ(ReadManifestFile(manifest, "tokenizer.json").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace strata
