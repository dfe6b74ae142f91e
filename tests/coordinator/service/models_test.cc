#include "coordinator/service/models/models.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/coordinator/service/coordinator_testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class ModelsTest : public ::testing::Test {
 protected:
  ModelsTest() {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    fs::copy(testing::GoldenPath("models/llama"), dir_ / "m");
  }
  ~ModelsTest() override { fs::remove_all(dir_); }

  void Add(const std::string& origin) {
    const auto added =
        models_.Add((dir_ / "m").string(), "m", origin, [](uint64_t, uint64_t) { return true; });
    ASSERT_TRUE(added.ok()) << added.status();
  }

  const fs::path dir_ =
      fs::path(::testing::TempDir()) / ("strata-models-" + std::to_string(::getpid()));
  testing::FailingStore store_;
  BlobStore blobs_;
  Models models_{&store_, &blobs_};
};

TEST_F(ModelsTest, TheUsersOwnFilesStay) {
  Add("path");
  const auto folder = models_.Forget("m");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*folder, "");
  EXPECT_TRUE(fs::exists(dir_ / "m" / "config.json"));
  EXPECT_EQ(ReasonOf(models_.Forget("m").status()), "MODEL_NOT_FOUND");
}

TEST_F(ModelsTest, AnUploadsNameIsFreeBeforeItsFilesAreDeleted) {
  Add("upload");
  const auto first = models_.Forget("m");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(fs::exists(dir_ / "m"));
  EXPECT_TRUE(fs::exists(*first));
  // Uploaded and removed once more before the first one is gone.
  fs::copy(testing::GoldenPath("models/llama"), dir_ / "m");
  Add("upload");
  const auto second = models_.Forget("m");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*second, *first);
  Models::DeleteFolder(*first);
  Models::DeleteFolder(*second);
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(ModelsTest, WhatAnEndedProcessLeftIsDeletedAtStartAndNothingElse) {
  Add("pull");
  ASSERT_TRUE(models_.Forget("m").ok());
  fs::create_directories(dir_ / "other");
  Models::DeleteLeftovers(dir_.string());
  EXPECT_TRUE(fs::exists(dir_ / "other"));
  fs::remove(dir_ / "other");
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(ModelsTest, AStoreThatFailsLeavesModelAndFiles) {
  Add("upload");
  store_.full = true;
  EXPECT_EQ(ReasonOf(models_.Forget("m").status()), "STORE_FULL");
  EXPECT_TRUE(models_.Get("m").ok());
  EXPECT_TRUE(fs::exists(dir_ / "m" / "config.json"));
}

TEST_F(ModelsTest, AStoreThatHangsHoldsUpNobodyWhoReads) {
  Add("upload");
  store_.hangs = true;
  std::thread forget([&] { EXPECT_TRUE(models_.Forget("m").ok()); });
  while (store_.waiting == 0) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(models_.Get("m").ok());
  EXPECT_EQ(models_.List().size(), 1u);
  store_.hangs = false;
  forget.join();
  EXPECT_FALSE(models_.Get("m").ok());
}

}  // namespace
}  // namespace strata
