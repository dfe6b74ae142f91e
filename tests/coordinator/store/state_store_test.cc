#include "coordinator/store/state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

class StateStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "/state_store_test.db";
    for (const char* tail : {"", "-wal", "-shm"}) {
      std::filesystem::remove(path_ + tail);
    }
  }
  std::unique_ptr<StateStore> Open() {
    auto store = OpenSqliteStore(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::string path_;
};

TEST_F(StateStoreTest, TheTermRisesWithEveryStartAndDeploymentIdsNeverReturn) {
  EXPECT_EQ(*Open()->RaiseTerm(), 1u);
  EXPECT_EQ(*Open()->RaiseTerm(), 2u);
  const auto store = Open();
  EXPECT_EQ(*store->NextDeploymentId(), 1u);
  EXPECT_EQ(*store->NextDeploymentId(), 2u);
  EXPECT_EQ(*Open()->NextDeploymentId(), 3u);
}

TEST_F(StateStoreTest, TheClusterKeepsItsName) {
  const std::string id = *Open()->ClusterId();
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(*Open()->ClusterId(), id);
}

TEST_F(StateStoreTest, WhatWasSavedIsThereAfterADirtyEnd) {
  StoredDeployment deployment;
  deployment.id = 7;
  deployment.model = "m";
  deployment.options.set_context(512);
  deployment.plan.set_epoch(3);
  {
    // Not closed, as after a crash.
    StateStore* leaked = Open().release();
    ASSERT_TRUE(leaked->SaveModel({"m", "/models/m", std::string("a\0b", 3), true}).ok());
    ASSERT_TRUE(leaked->SaveDeployment(deployment).ok());
    v1::NodeInfo info;
    info.set_name("n");
    ASSERT_TRUE(leaked->SaveNode("n", info, true).ok());
  }
  const auto store = Open();
  const auto models = *store->ListModels();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].manifest, std::string("a\0b", 3));
  EXPECT_TRUE(models[0].owned);
  deployment.plan.set_epoch(4);
  ASSERT_TRUE(store->UpdatePlan(7, deployment.plan).ok());
  const auto deployments = *store->ListDeployments();
  ASSERT_EQ(deployments.size(), 1u);
  EXPECT_EQ(deployments[0].plan.epoch(), 4u);
  EXPECT_EQ(deployments[0].options.context(), 512u);
  EXPECT_TRUE((*store->ListNodes())[0].draining);
  ASSERT_TRUE(store->RemoveDeployment(7).ok());
  ASSERT_TRUE(store->RemoveModel("m").ok());
  ASSERT_TRUE(store->RemoveNode("n").ok());
  EXPECT_TRUE(store->ListDeployments()->empty());
  EXPECT_TRUE(store->ListModels()->empty());
  EXPECT_TRUE(store->ListNodes()->empty());
  EXPECT_EQ(store->UpdatePlan(7, deployment.plan).code(), absl::StatusCode::kNotFound);
}

TEST_F(StateStoreTest, ANewerSchemaIsRefusedByName) {
  Open();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  sqlite3_exec(db, "PRAGMA user_version = 99", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  const auto store = OpenSqliteStore(path_);
  EXPECT_EQ(ReasonOf(store.status()), "STORE_NEWER");
  EXPECT_THAT(Describe(store.status()), HasSubstr(path_));
}

TEST_F(StateStoreTest, AFileThatIsNoDatabaseIsRefusedByName) {
  std::ofstream(path_) << std::string(4096, 'x');
  const auto store = OpenSqliteStore(path_);
  EXPECT_EQ(ReasonOf(store.status()), "STORE_BROKEN");
  EXPECT_THAT(Describe(store.status()), HasSubstr(path_));
}

}  // namespace
}  // namespace strata
