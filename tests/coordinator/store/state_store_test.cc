// What every state store does.
#include "coordinator/store/state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "common/mutex.h"
#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::Plan PlanOfEpoch(uint64_t epoch) {
  v1::Plan plan;
  plan.set_epoch(epoch);
  plan.add_pipelines()->add_stages()->add_ranks()->set_node("a");
  return plan;
}

class StateStoreTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam()) == "memory") {
      store_ = MakeMemoryStore("0123456789abcdef0123456789abcdef");
      return;
    }
    auto opened = OpenSqliteStore(folder_.File("state.db"));
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }

  testing::TempFolder folder_;
  std::unique_ptr<StateStore> store_;
};

TEST_P(StateStoreTest, RaisesTheTermByOne) {
  EXPECT_EQ(*store_->RaiseTerm(), 1);
  EXPECT_EQ(*store_->RaiseTerm(), 2);
  EXPECT_EQ(*store_->RaiseTerm(), 3);
}

TEST_P(StateStoreTest, HasAClusterIdThatStays) {
  const std::string id = *store_->ClusterId();
  EXPECT_THAT(id, SizeIs(32));
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(*store_->ClusterId(), id);
}

TEST_P(StateStoreTest, KeepsModelsByName) {
  EXPECT_THAT(*store_->ListModels(), IsEmpty());
  const std::string odd("a\0'\xff;", 5);
  ASSERT_TRUE(store_->SaveModel({"m", "/p", "{\"x\":1}", "d1", "path"}).ok());
  ASSERT_TRUE(store_->SaveModel({"b", odd, odd, "d2", "pull"}).ok());
  ASSERT_TRUE(store_->SaveModel({"m", "/q", "", "d3", "upload"}).ok());
  const auto models = *store_->ListModels();
  ASSERT_THAT(models, SizeIs(2));
  EXPECT_EQ(models[0].name, "b");
  EXPECT_EQ(models[0].path, odd);
  EXPECT_EQ(models[0].manifest, odd);
  EXPECT_EQ(models[1].path, "/q");
  EXPECT_EQ(models[1].manifest, "");
  EXPECT_EQ(models[1].digest, "d3");
  EXPECT_EQ(models[1].origin, "upload");
  EXPECT_EQ(store_->GetModel("b")->digest, "d2");
  EXPECT_TRUE(store_->RemoveModel("b").ok());
  EXPECT_EQ(store_->GetModel("b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(store_->RemoveModel("b")), "NO_MODEL");
  EXPECT_THAT(std::string(store_->RemoveModel("b").message()), HasSubstr("'b'"));
}

TEST_P(StateStoreTest, GivesEachDeploymentANumberOfItsOwn) {
  EXPECT_EQ(*store_->NextDeploymentId(), 1);
  StoredDeployment deployment;
  deployment.id = 1;
  ASSERT_TRUE(store_->SaveDeployment(deployment).ok());
  ASSERT_TRUE(store_->RemoveDeployment(1).ok());
  EXPECT_EQ(*store_->NextDeploymentId(), 2);
}

TEST_P(StateStoreTest, KeepsDeploymentsAndTheirPlans) {
  StoredDeployment deployment;
  deployment.id = 7;
  deployment.model = "m";
  deployment.options.set_context(4096);
  deployment.plan = PlanOfEpoch(3);
  ASSERT_TRUE(store_->SaveDeployment(deployment).ok());
  deployment.plan = PlanOfEpoch(4);
  ASSERT_TRUE(store_->SaveDeployment(deployment).ok());
  auto listed = *store_->ListDeployments();
  ASSERT_THAT(listed, SizeIs(1));
  EXPECT_EQ(listed[0].id, 7);
  EXPECT_EQ(listed[0].model, "m");
  EXPECT_EQ(listed[0].options.context(), 4096);
  EXPECT_EQ(listed[0].plan.epoch(), 4);
  EXPECT_EQ(listed[0].plan.pipelines(0).stages(0).ranks(0).node(), "a");
  EXPECT_EQ(listed[0].desired_state, "loaded");
  EXPECT_EQ(store_->RemoveDeployment(8).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->RemoveDeployment(7).ok());
  EXPECT_THAT(*store_->ListDeployments(), IsEmpty());
}

TEST_P(StateStoreTest, ReplacesADeploymentWhollyOrNotAtAll) {
  StoredDeployment deployment;
  deployment.id = 7;
  deployment.plan = PlanOfEpoch(3);
  ASSERT_TRUE(store_->SaveDeployment(deployment).ok());
  StoredDeployment other = deployment;
  other.id = 8;
  EXPECT_EQ(store_->ReplaceDeployment(9, other).code(), absl::StatusCode::kNotFound);
  ASSERT_THAT(*store_->ListDeployments(), SizeIs(1));
  EXPECT_TRUE(store_->ReplaceDeployment(7, other).ok());
  ASSERT_THAT(*store_->ListDeployments(), SizeIs(1));
  EXPECT_EQ((*store_->ListDeployments())[0].id, 8);
  // What cannot be saved replaces nothing.
  ASSERT_TRUE(store_->SaveDeployment(deployment).ok());
  other.plan = PlanOfEpoch(2);
  EXPECT_EQ(ReasonOf(store_->ReplaceDeployment(7, other)), "STALE_EPOCH");
  EXPECT_THAT(*store_->ListDeployments(), SizeIs(2));
}

TEST_P(StateStoreTest, NeverLetsAnEpochGoBack) {
  StoredDeployment deployment;
  deployment.id = 7;
  deployment.plan = PlanOfEpoch(5);
  ASSERT_TRUE(store_->SaveDeployment(deployment).ok());
  EXPECT_TRUE(store_->SaveDeployment(deployment).ok()) << "the same epoch again";
  deployment.plan = PlanOfEpoch(4);
  EXPECT_EQ(ReasonOf(store_->SaveDeployment(deployment)), "STALE_EPOCH");
  deployment.plan = PlanOfEpoch(6);
  deployment.desired_state = "unloaded";
  EXPECT_TRUE(store_->SaveDeployment(deployment).ok());
  EXPECT_EQ((*store_->ListDeployments())[0].plan.epoch(), 6);
  EXPECT_EQ((*store_->ListDeployments())[0].desired_state, "unloaded");
}

TEST_P(StateStoreTest, KeepsNodes) {
  v1::NodeInfo info;
  info.set_name("a");
  info.set_memory_bytes(uint64_t{1} << 40);
  ASSERT_TRUE(store_->SaveNode("a", info, false).ok());
  ASSERT_TRUE(store_->SaveNode("a", info, true).ok());
  ASSERT_TRUE(store_->SaveNode("0", v1::NodeInfo(), false).ok());
  const auto nodes = *store_->ListNodes();
  ASSERT_THAT(nodes, SizeIs(2));
  EXPECT_EQ(nodes[0].name, "0");
  EXPECT_FALSE(nodes[0].draining);
  EXPECT_TRUE(nodes[1].draining);
  EXPECT_EQ(nodes[1].info.memory_bytes(), uint64_t{1} << 40);
  EXPECT_TRUE(store_->RemoveNode("a").ok());
  EXPECT_EQ(ReasonOf(store_->RemoveNode("a")), "NO_NODE");
}

TEST_P(StateStoreTest, RemovesManyNodesAtOnceAndMissesNone) {
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(store_->SaveNode(name, v1::NodeInfo(), false).ok());
  }
  EXPECT_TRUE(store_->RemoveNodes({"a", "never was", "c"}).ok());
  ASSERT_EQ(store_->ListNodes()->size(), 1u);
  EXPECT_EQ(store_->ListNodes()->front().name, "b");
  EXPECT_TRUE(store_->RemoveNodes({}).ok());
}

TEST_P(StateStoreTest, KeepsKeys) {
  EXPECT_THAT(*store_->ListKeys(), IsEmpty());
  StoredKey key{.id = "b",
                .name = "same",
                .hash = "h1",
                .admin = true,
                .created = 5,
                .limits = {3, 4, uint64_t{1} << 40}};
  ASSERT_TRUE(store_->SaveKey(key).ok());
  ASSERT_TRUE(store_->SaveKey({.id = "a", .name = "same", .hash = "h2", .limits = {}}).ok());
  key.last_used = 7;
  key.revoked = 9;
  ASSERT_TRUE(store_->SaveKey(key).ok());
  const auto keys = *store_->ListKeys();
  ASSERT_THAT(keys, SizeIs(2));
  EXPECT_EQ(keys[0].id, "a");
  EXPECT_EQ(keys[0].name, "same");
  EXPECT_FALSE(keys[0].admin);
  EXPECT_EQ(keys[0].limits, KeyLimits());
  EXPECT_EQ(keys[1].id, "b");
  EXPECT_EQ(keys[1].name, "same");
  EXPECT_TRUE(keys[1].admin);
  EXPECT_EQ(keys[1].hash, "h1");
  EXPECT_EQ(keys[1].created, 5u);
  EXPECT_EQ(keys[1].last_used, 7u);
  EXPECT_EQ(keys[1].revoked, 9u);
  EXPECT_EQ(keys[1].limits, key.limits);
}

TEST_P(StateStoreTest, KeepsSettings) {
  EXPECT_EQ(*store_->GetSetting("k"), std::nullopt);
  ASSERT_TRUE(store_->SetSetting("k", "1").ok());
  ASSERT_TRUE(store_->SetSetting("k", "").ok());
  EXPECT_EQ(*store_->GetSetting("k"), "");
}

TEST_P(StateStoreTest, GivesThreadsDifferentNumbers) {
  Mutex mutex;
  std::set<uint64_t> ids;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const auto id = store_->NextDeploymentId();
        ASSERT_TRUE(id.ok()) << id.status();
        MutexLock lock(&mutex);
        ids.insert(*id);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(ids, SizeIs(40));
}

INSTANTIATE_TEST_SUITE_P(Stores, StateStoreTest, ::testing::Values("memory", "sqlite"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace strata
