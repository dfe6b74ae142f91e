#include "coordinator/registry/digest_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <vector>

#include "common/digest.h"
#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadFileOrFail;
using testing::TempFolder;

// Every digest again, from the files as a whole.
void ExpectTrueDigests(const ModelManifest& manifest) {
  std::map<std::string, std::string> contents;
  for (const ManifestFile& file : manifest.files) {
    std::string& bytes = contents[file.name];
    bytes = ReadFileOrFail(manifest.path + "/" + file.name);
    EXPECT_EQ(file.sha256, Sha256Hex(bytes)) << file.name;
    EXPECT_EQ(file.identity.bytes, bytes.size());
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    const std::string_view bytes = contents[tensor.file];
    EXPECT_EQ(tensor.sha256, Sha256Hex(bytes.substr(tensor.offset, tensor.bytes))) << tensor.name;
  }
}

std::vector<std::string> FileNames(const ModelManifest& manifest) {
  std::vector<std::string> names;
  for (const ManifestFile& file : manifest.files) {
    names.push_back(file.name);
  }
  return names;
}

TEST(DigestCheckpoint, DigestsFilesAndTensors) {
  for (const std::string& path :
       {testing::GoldenPath("models/llama"), testing::GoldenPath("models/llama31"),
        testing::SourcePath("models/recall")}) {
    const auto manifest = DigestCheckpoint(path, nullptr);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    ExpectTrueDigests(*manifest);
    EXPECT_EQ(manifest->weights_digest, WeightsDigest(manifest->tensors));
    EXPECT_FALSE(manifest->spec.layers.empty());
  }
}

TEST(LookAtCheckpoint, FindsTheSameButReadsNoWeights) {
  for (const std::string& path :
       {testing::SourcePath("models/recall"), testing::GoldenPath("gguf/llama-q4_0.gguf")}) {
    const auto looked = LookAtCheckpoint(path);
    const auto digested = DigestCheckpoint(path, nullptr);
    ASSERT_TRUE(looked.ok() && digested.ok()) << looked.status() << digested.status();
    EXPECT_EQ(looked->path, digested->path);
    EXPECT_EQ(looked->Source(), digested->Source());
    EXPECT_EQ(looked->config_json, digested->config_json);
    EXPECT_EQ(looked->chat_template, digested->chat_template);
    EXPECT_EQ(looked->chat_template_file, digested->chat_template_file);
    EXPECT_EQ(looked->has_tokenizer, digested->has_tokenizer);
    EXPECT_EQ(looked->tensors.size(), digested->tensors.size());
    EXPECT_EQ(FileNames(*looked), FileNames(*digested));
    for (const ManifestFile& file : looked->files) {
      const bool weights = file.name.ends_with(".safetensors") || file.name.ends_with(".gguf");
      EXPECT_EQ(file.sha256, weights ? "" : digested->FindFile(file.name)->sha256) << file.name;
    }
  }
  EXPECT_EQ(LookAtCheckpoint("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

TEST(DigestCheckpoint, DigestsTensorsThatSpanChunksAndEmptyOnes) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  auto tensors = testing::MakeTensors(*ParseModelConfig(testing::SmallConfig(), ""));
  // Longer than two of the digester's chunks, and not aligned with them.
  std::string large(size_t{9} << 20, '\0');
  for (size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<char>(i * i >> 7);
  }
  tensors.insert(tensors.begin() + 3, {"a.large", "U8", {large.size()}, large});
  tensors.insert(tensors.begin() + 4, {"b.empty", "F32", {0, 4}, ""});
  tensors.push_back({"z.empty", "F32", {0}, ""});
  folder.Write("model.safetensors", testing::SafetensorsFile(tensors));
  const auto manifest = DigestCheckpoint(folder.path(), nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ExpectTrueDigests(*manifest);
  EXPECT_EQ(manifest->FindTensor("z.empty")->sha256, Sha256Hex(""));
  EXPECT_EQ(manifest->FindTensor("a.large")->sha256, Sha256Hex(large));
}

TEST(DigestCheckpoint, TakesOnlyTheFilesThatCount) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  for (const char* name :
       {"README.md", "consolidated.safetensors", "model.py", "pytorch_model.bin", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja", "merges.txt", "extra.json"}) {
    folder.Write(name, std::string_view(name).ends_with("json") ? "{}" : "x");
  }
  std::filesystem::create_directory(folder.File("folder.json"));
  const auto manifest = DigestCheckpoint(folder.path(), nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(FileNames(*manifest),
              ElementsAre("chat_template.jinja", "config.json", "extra.json", "merges.txt",
                          "model.safetensors", "tokenizer.json", "tokenizer_config.json"));
  EXPECT_TRUE(manifest->has_tokenizer);
  EXPECT_EQ(manifest->chat_template, "x");
}

TEST(DigestCheckpoint, ATiktokenFileIsATokenizerToo) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  folder.Write("qwen.tiktoken", "YQ== 0\n");
  const auto manifest = DigestCheckpoint(folder.path(), nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(FileNames(*manifest),
              ElementsAre("config.json", "model.safetensors", "qwen.tiktoken"));
  EXPECT_TRUE(manifest->has_tokenizer);
}

TEST(DigestCheckpoint, SaysTheSameOfTheSameContentAnywhere) {
  TempFolder one;
  TempFolder other;
  testing::WriteSmallCheckpoint(one);
  testing::WriteShardedCheckpoint(other, 3);  // The same tensors, in other files.
  const auto a = DigestCheckpoint(one.path(), nullptr);
  const auto b = DigestCheckpoint(other.path(), nullptr);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->weights_digest, b->weights_digest);
  std::string bytes = one.Read("model.safetensors");
  bytes.back() ^= 1;
  one.Write("model.safetensors", bytes);
  EXPECT_NE(DigestCheckpoint(one.path(), nullptr)->weights_digest, a->weights_digest);
}

TEST(DigestCheckpoint, MakesThePathAbsoluteAndFollowsSymlinks) {
  TempFolder real;
  TempFolder folder;
  testing::WriteSmallCheckpoint(real);
  for (const char* name : {"config.json", "model.safetensors"}) {
    ASSERT_EQ(symlink(real.File(name).c_str(), folder.File(name).c_str()), 0);
  }
  const auto manifest = DigestCheckpoint(folder.path() + "/./", nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->path, folder.path());
  ExpectTrueDigests(*manifest);
  const std::string relative =
      std::filesystem::relative(folder.path(), std::filesystem::current_path()).string();
  EXPECT_EQ(DigestCheckpoint(relative, nullptr)->path, folder.path());
}

TEST(DigestCheckpoint, ReportsProgressAndStops) {
  const std::string path = testing::SourcePath("models/recall");
  uint64_t last = 0;
  uint64_t total = 0;
  int calls = 0;
  const auto manifest = DigestCheckpoint(path, [&](uint64_t done, uint64_t all) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, all);
    last = done;
    total = all;
    ++calls;
    return true;
  });
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(last, total);
  EXPECT_GT(calls, 2);
  uint64_t sum = 0;
  for (const ManifestFile& file : manifest->files) {
    sum += file.identity.bytes;
  }
  EXPECT_EQ(total, sum);
  const auto stopped = DigestCheckpoint(path, [&](uint64_t done, uint64_t) { return done == 0; });
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled);
}

TEST(DigestCheckpoint, NoticesAChangeMeanwhile) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const auto longer = DigestCheckpoint(folder.path(), [&](uint64_t done, uint64_t) {
    if (done == 0) {
      folder.Write("model.safetensors", folder.Read("model.safetensors") + "x");
    }
    return true;
  });
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kAborted);
  testing::WriteSmallCheckpoint(folder);
  const auto shorter = DigestCheckpoint(folder.path(), [&](uint64_t done, uint64_t) {
    if (done == 0) {
      folder.Write("model.safetensors", "x");
    }
    return true;
  });
  EXPECT_EQ(shorter.status().code(), absl::StatusCode::kAborted);
}

TEST(DigestCheckpoint, RefusesWhatTheReaderRefuses) {
  TempFolder folder;
  EXPECT_EQ(DigestCheckpoint(folder.path(), nullptr).status().code(), absl::StatusCode::kNotFound);
  testing::WriteSmallCheckpoint(folder);
  folder.Write("generation_config.json", R"({"temperature":-1})");
  EXPECT_THAT(std::string(DigestCheckpoint(folder.path(), nullptr).status().message()),
              HasSubstr("temperature"));
  folder.Remove("generation_config.json");
  folder.Write("tokenizer_config.json", R"({"chat_template":5})");
  EXPECT_THAT(std::string(DigestCheckpoint(folder.path(), nullptr).status().message()),
              HasSubstr("chat_template"));
}

}  // namespace
}  // namespace strata
