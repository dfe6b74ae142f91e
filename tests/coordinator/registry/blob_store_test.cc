#include "coordinator/registry/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "common/digest.h"
#include "common/status.h"
#include "coordinator/registry/digest_checkpoint.h"
#include "coordinator/registry/model_changed.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

std::shared_ptr<const ModelManifest> Digest(const std::string& path) {
  auto manifest = DigestCheckpoint(path, nullptr);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  manifest->model = "m";
  return std::make_shared<const ModelManifest>(*std::move(manifest));
}

TEST(BlobStore, ReadsTensorsAndFilesByContent) {
  TempFolder folder;
  testing::WriteShardedCheckpoint(folder, 2);
  BlobStore blobs;
  const auto manifest = Digest(folder.path());
  blobs.AddManifest("m", manifest);
  for (const ManifestTensor& tensor : manifest->tensors) {
    const auto blob = blobs.Find(tensor.sha256);
    ASSERT_TRUE(blob.ok()) << blob.status();
    EXPECT_EQ(blob->bytes, tensor.bytes);
    std::string bytes;
    ASSERT_TRUE(blobs.Read(*blob, 0, blob->bytes, &bytes).ok());
    EXPECT_EQ(Sha256Hex(bytes), tensor.sha256);
    std::string part;
    ASSERT_TRUE(blobs.Read(*blob, 5, 7, &part).ok());
    EXPECT_EQ(part, bytes.substr(5, 7));
  }
  const auto config = blobs.Find(manifest->FindFile("config.json")->sha256);
  ASSERT_TRUE(config.ok());
  std::string text;
  ASSERT_TRUE(blobs.Read(*config, 0, config->bytes, &text).ok());
  EXPECT_EQ(text, manifest->config_json);
}

TEST(BlobStore, RefusesRangesBeyondTheBlob) {
  BlobStore blobs;
  const MemoryBlob memory = blobs.AddMemory("0123456789");
  const auto blob = blobs.Find(memory.sha256);
  ASSERT_TRUE(blob.ok());
  std::string out;
  EXPECT_TRUE(blobs.Read(*blob, 10, 0, &out).ok());
  EXPECT_EQ(out, "");
  EXPECT_EQ(blobs.Read(*blob, 11, 0, &out).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(blobs.Read(*blob, 9, 2, &out).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(blobs.Read(*blob, 1, UINT64_MAX, &out).code(), absl::StatusCode::kOutOfRange);
}

TEST(BlobStore, OffersABlobInMemoryUntilNobodyUsesIt) {
  BlobStore blobs;
  std::string sha256;
  {
    MemoryBlob first = blobs.AddMemory("rotary");
    sha256 = first.sha256;
    EXPECT_EQ(sha256, Sha256Hex("rotary"));
    const MemoryBlob second = blobs.AddMemory("rotary");
    EXPECT_EQ(second.data, first.data);
    first = MemoryBlob();
    auto blob = blobs.Find(sha256);
    ASSERT_TRUE(blob.ok());
    std::string out;
    ASSERT_TRUE(blobs.Read(*blob, 0, blob->bytes, &out).ok());
    EXPECT_EQ(out, "rotary");
  }
  EXPECT_EQ(blobs.Find(sha256).status().code(), absl::StatusCode::kNotFound);
  const MemoryBlob again = blobs.AddMemory("rotary");
  EXPECT_EQ(again.sha256, sha256);
  EXPECT_TRUE(blobs.Find(sha256).ok());
}

TEST(BlobStore, WhoReadsABlobInMemoryCanGoOnWhenItIsForgotten) {
  BlobStore blobs;
  MemoryBlob memory = blobs.AddMemory("rotary");
  const auto blob = blobs.Find(memory.sha256);
  ASSERT_TRUE(blob.ok());
  memory = MemoryBlob();
  std::string out;
  ASSERT_TRUE(blobs.Read(*blob, 0, blob->bytes, &out).ok());
  EXPECT_EQ(out, "rotary");
}

TEST(BlobStore, ForgetsARemovedModel) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  BlobStore blobs;
  const auto manifest = Digest(folder.path());
  blobs.AddManifest("m", manifest);
  blobs.AddManifest("same", manifest);
  const std::string sha256 = manifest->tensors[0].sha256;
  blobs.RemoveManifest("m");
  EXPECT_TRUE(blobs.Find(sha256).ok());
  blobs.RemoveManifest("same");
  EXPECT_EQ(ReasonOf(blobs.Find(sha256).status()), "NO_BLOB");
  blobs.RemoveManifest("same");
}

// Moves a file's modification time.
void Touch(const std::string& path, int seconds) {
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::seconds(seconds));
}

TEST(BlobStore, AFileWhoseTimeAloneChangedIsReadAgainOnceAndTrusted) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  BlobStore blobs;
  std::vector<FileIdentity> renewed;
  blobs.trust()->OnSame(
      [&](const std::string& path, const FileIdentity& identity, const std::string& sha256) {
        EXPECT_EQ(path, folder.File("model.safetensors"));
        EXPECT_EQ(sha256, Sha256Hex(folder.Read("model.safetensors")));
        renewed.push_back(identity);
      });
  const auto manifest = Digest(folder.path());
  blobs.AddManifest("m", manifest);
  const auto blob = blobs.Find(manifest->tensors[0].sha256);
  ASSERT_TRUE(blob.ok());
  const auto read = [&] {
    std::string out;
    return blobs.Read(*blob, 0, 4, &out);
  };
  EXPECT_TRUE(read().ok());
  EXPECT_EQ(renewed.size(), 0u) << "of the same size and time it is not read";
  Touch(folder.File("model.safetensors"), 5);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(read().ok()) << read();
  }
  ASSERT_EQ(renewed.size(), 1u);
  EXPECT_NE(renewed[0], manifest->FindFile("model.safetensors")->identity);
  // Copied back by a tool that keeps times: another inode, and not read again.
  std::filesystem::copy_file(folder.File("model.safetensors"), folder.File("copy"));
  std::filesystem::last_write_time(
      folder.File("copy"),
      std::filesystem::last_write_time(folder.File("model.safetensors")) - std::chrono::seconds(5));
  std::filesystem::rename(folder.File("copy"), folder.File("model.safetensors"));
  EXPECT_TRUE(read().ok());
  EXPECT_EQ(renewed.size(), 1u);
}

TEST(BlobStore, WhoAsksWhileAFileIsReadAgainWaitsForThatOneReading) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  BlobStore blobs;
  std::atomic<int> renewed = 0;
  blobs.trust()->OnSame([&](const auto&, const auto&, const auto&) { ++renewed; });
  const auto manifest = Digest(folder.path());
  blobs.AddManifest("m", manifest);
  Touch(folder.File("model.safetensors"), 5);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      std::string out;
      EXPECT_TRUE(blobs.Read(*blobs.Find(manifest->tensors[0].sha256), 0, 4, &out).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(renewed, 1);
}

TEST(BlobStore, AHintNamesThePathAsAShellTakesIt) {
  ModelManifest manifest;
  manifest.model = "m";
  manifest.path = "/models/my model";
  manifest.files = {{"config.json", {}, ""}};
  EXPECT_THAT(DetailOf(ModelChanged("/x", manifest, "is gone")).hint(),
              HasSubstr("`strata model add '/models/my model' --name m`"));
  manifest.ours = true;
  EXPECT_THAT(DetailOf(ModelChanged("/x", manifest, "is gone")).hint(),
              HasSubstr("`strata model remove m --force` and upload or pull it again"));
}

TEST(BlobStore, RefusesAFileThatChanged) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  BlobStore blobs;
  const auto manifest = Digest(folder.path());
  blobs.AddManifest("m", manifest);
  const auto blob = blobs.Find(manifest->tensors[0].sha256);
  ASSERT_TRUE(blob.ok());
  std::string out;
  ASSERT_TRUE(blobs.Read(*blob, 0, 4, &out).ok());

  // The same size: only the time tells.
  std::string bytes = folder.Read("model.safetensors");
  bytes.back() ^= 1;
  folder.Write("model.safetensors", bytes);
  std::filesystem::last_write_time(
      folder.File("model.safetensors"),
      std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  absl::Status status = blobs.Read(*blob, 0, 4, &out);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "MODEL_CHANGED");
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder.File("model.safetensors")));
  EXPECT_THAT(DetailOf(status).hint(),
              HasSubstr("`strata model add " + folder.path() + " --name m`"));

  folder.Remove("model.safetensors");
  status = blobs.Read(*blob, 0, 4, &out);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is gone"));
}

TEST(BlobStore, PrefersAFileThatHasNotChanged) {
  TempFolder one;
  TempFolder other;
  testing::WriteSmallCheckpoint(one);
  testing::WriteSmallCheckpoint(other);
  BlobStore blobs;
  const auto manifest = Digest(one.path());
  blobs.AddManifest("a", manifest);
  blobs.AddManifest("b", Digest(other.path()));
  one.Remove("model.safetensors");
  const auto blob = blobs.Find(manifest->tensors[0].sha256);
  ASSERT_TRUE(blob.ok());
  std::string out;
  EXPECT_TRUE(blobs.Read(*blob, 0, blob->bytes, &out).ok());
  EXPECT_EQ(Sha256Hex(out), blob->sha256);
}

TEST(BlobStore, ServesThreadsWhileModelsComeAndGo) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  BlobStore blobs;
  const auto manifest = Digest(folder.path());
  blobs.AddManifest("m", manifest);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) {
      blobs.AddManifest("other", manifest);
      EXPECT_TRUE(blobs.Find(blobs.AddMemory(std::to_string(i)).sha256).ok());
      blobs.RemoveManifest("other");
    }
    stop = true;
  });
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto blob = blobs.Find(manifest->tensors[0].sha256);
        std::string out;
        EXPECT_TRUE(blob.ok() && blobs.Read(*blob, 0, blob->bytes, &out).ok());
      }
    });
  }
  writer.join();
  for (std::thread& reader : readers) {
    reader.join();
  }
}

}  // namespace
}  // namespace strata
