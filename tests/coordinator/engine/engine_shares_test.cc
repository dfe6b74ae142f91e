// Who gets what there is too little of: KV memory at admission, and rows of steps. A tenant is a
// cache_salt.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using std::chrono::seconds;

SessionRequest Of(const std::string& tenant, const std::string& id, uint32_t prompt_tokens,
                  uint32_t max_tokens) {
  SessionRequest request = MakeRequest(id, prompt_tokens, max_tokens);
  request.cache_salt = tenant;
  return request;
}

// The tenants of those that started, in order; one at a time has room.
std::string OrderOfStarts(SimCluster& cluster,
                          const std::vector<std::pair<char, std::shared_ptr<SinkRecord>>>& sinks) {
  std::string order;
  std::vector<bool> seen(sinks.size());
  for (uint32_t i = 0; i < 100000 && cluster.engine().live_sessions() > 0; ++i) {
    cluster.Deliver(i % 3);
    for (size_t s = 0; s < sinks.size(); ++s) {
      if (!seen[s] && sinks[s].second->started.has_value()) {
        seen[s] = true;
        order += sinks[s].first;
      }
    }
  }
  return order;
}

class OneAtATime : public ::testing::Test {
 protected:
  OneAtATime() : cluster_(Config()) {
    cluster_.Start();
    cluster_.Settle();
  }
  static EngineConfig Config() {
    EngineConfig config = MakeConfig(2, 8);
    config.prefix_cache = false;
    return config;
  }
  void Submit(char tenant, int32_t priority = 0) {
    SessionRequest request =
        Of(std::string(tenant == '-' ? 0 : 1, tenant), "r" + std::to_string(sinks_.size()), 100, 5);
    request.priority = priority;
    sinks_.emplace_back(tenant, cluster_.Submit(std::move(request)));
  }

  SimCluster cluster_;
  std::vector<std::pair<char, std::shared_ptr<SinkRecord>>> sinks_;
};

TEST_F(OneAtATime, TenantsStartInTurnHoweverManyRequestsTheyHave) {
  for (const char tenant : std::string("aaaaaabb-")) {
    Submit(tenant);
  }
  // The first had nobody to compare with; the others are level with it when they come.
  EXPECT_EQ(OrderOfStarts(cluster_, sinks_), "ab-abaaaa");
}

TEST_F(OneAtATime, PrioritiesComeBeforeShares) {
  for (const char tenant : std::string("aaa")) {
    Submit(tenant, 1);
  }
  Submit('b');
  EXPECT_EQ(OrderOfStarts(cluster_, sinks_), "aaab");
}

TEST_F(OneAtATime, WhoComesLateHasSavedUpNothing) {
  for (int i = 0; i < 6; ++i) {
    Submit('a');
  }
  while (!sinks_[3].second->started.has_value()) {
    cluster_.Deliver(0);
    cluster_.Deliver(1);
    cluster_.Deliver(2);
  }
  for (int i = 0; i < 4; ++i) {
    Submit('b');
  }
  const std::string order = OrderOfStarts(cluster_, sinks_);
  EXPECT_EQ(order.substr(4), "bababb") << "not four of b first";
}

TEST(EngineShares, TenantsShareTheRowsOfPrompts) {
  EngineConfig config = MakeConfig(2, 400);
  config.max_batch_tokens = 32;
  config.prefix_cache = false;
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  for (int i = 0; i < 4; ++i) {
    cluster.Submit(Of("greedy", "g" + std::to_string(i), 400, 1));
  }
  cluster.Submit(Of("other", "o", 400, 1));
  std::map<char, uint32_t> rows;
  size_t seen = 0;
  while (rows['g'] + rows['o'] < 600) {
    cluster.Deliver(0);
    cluster.Deliver(1);
    cluster.Deliver(2);
    for (; seen < cluster.sent.size(); ++seen) {
      for (const v1::StepItem& item : cluster.sent[seen].items()) {
        rows[item.sequence().request_id()[0]] += static_cast<uint32_t>(item.token_ids_size());
      }
    }
  }
  EXPECT_NEAR(rows['o'], 300, 100) << "half of the rows, though it has a fifth of the requests";
}

TEST(EngineShares, NothingIsComputedForASessionWhoseDeadlineHasPassed) {
  SimCluster cluster(MakeConfig(2, 100));
  cluster.Start();
  cluster.Settle();
  SessionRequest late = MakeRequest("late", 60, 60);
  late.deadline = cluster.now() + seconds(1);
  const auto sink = cluster.Submit(late);
  const auto other = cluster.Submit(MakeRequest("other", 60, 60));
  for (int i = 0; i < 30; ++i) {
    cluster.Deliver(i % 3);
  }
  ASSERT_GT(sink->tokens.size(), 0u);
  ASSERT_FALSE(sink->ended());
  // A result, not the clock, is what comes next.
  cluster.PassTime(seconds(1));
  const size_t before = cluster.sent.size();
  cluster.Settle();
  EXPECT_EQ(ReasonOf(sink->failed.value()), "DEADLINE_EXCEEDED");
  for (size_t i = before; i < cluster.sent.size(); ++i) {
    for (const v1::StepItem& item : cluster.sent[i].items()) {
      EXPECT_NE(item.sequence().request_id(), "late");
    }
  }
  EXPECT_TRUE(other->done.has_value());
}

TEST(EngineShares, TheSnapshotSaysWhatTheSchedulerGoesBy) {
  EngineConfig config = MakeConfig(2, 100);
  config.inter_token_target = milliseconds(7);
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  const EngineSnapshot idle = cluster.Snapshot();
  EXPECT_EQ(idle.inter_token_target_ms, 7);
  EXPECT_EQ(idle.prefill_step_ms, ToMs(config.step_timeout) / 8) << "nobody decodes";
  cluster.Submit(MakeRequest("r1", 5, 100));
  cluster.Submit(MakeRequest("r2", 5, 100));
  for (int i = 0; i < 60; ++i) {
    cluster.Deliver(i % 3);
  }
  const EngineSnapshot busy = cluster.Snapshot();
  EXPECT_EQ(busy.micro_batches, 2u);
  EXPECT_GE(busy.prefill_step_ms, 7.0 / 2);
  EXPECT_LT(busy.prefill_step_ms, 7.0);
}

}  // namespace
}  // namespace strata
