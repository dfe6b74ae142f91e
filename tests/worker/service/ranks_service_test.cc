// Ranks of workers that find each other over gRPC, and gather over sockets.
#include "worker/service/ranks_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/eventually.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "tests/worker/collective/turned_clock.h"
#include "tests/worker/ranks/followed_stage.h"
#include "worker/ranks/leader_shard.h"

namespace strata::testing {
namespace {

constexpr milliseconds kWait(kGiveUpAfter);
constexpr uint64_t kDeployment = 8;
constexpr uint64_t kLoadedEpoch = 21;

// A follower's worker.
struct Follower {
  Follower(const Transport& transport, const std::string& name)
      : peer{.node = name, .incarnation = 77, .address = {}, .loaded_epoch = kLoadedEpoch},
        service([name] {
          return LinkHandler::Identity{name, 77};
        }) {
    auto started = RpcServer::Start(transport, "127.0.0.1:0", {&service});
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    peer.address = server->address();
  }
  void Have(std::shared_ptr<RankSeat> seat) {
    service.Set([seat](uint64_t deployment, uint64_t epoch) {
      return deployment == kDeployment && epoch == kLoadedEpoch ? seat : nullptr;
    });
  }

  RankPeer peer;
  RanksService service;
  std::unique_ptr<RpcServer> server;
};

class RanksServiceTest : public ::testing::Test {
 protected:
  absl::Status Ask(const RankPeer& peer, const RankToJoin& join,
                   uint64_t deployment = kDeployment) {
    return AskToJoin(transport_, peer, deployment, join, kWait).status();
  }

  const Transport transport_ = *Transport::Make({});
};

TEST_F(RanksServiceTest, WorkersThatAreAskedFollow) {
  const MadeUpModel model({.heads = 6, .kv_heads = 2});
  const MadeUpStage stage = WholeModel(model);
  const std::vector<double> shares = {2, 1, 1};
  const auto backends = BackendsOf(shares.size());
  auto ranks = LoadRanks(backends, shares, stage.spec, model, nullptr, nullptr);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const TurnedClock clock;  // Stands still.
  const RankTimes times = {.clock = &clock,
                           .timeout = kWait,
                           .silence = kWait,
                           .pause = [](uint64_t) { std::this_thread::yield(); },
                           .names = {"w0", "w1", "w2"}};
  std::vector<std::unique_ptr<Follower>> followers;
  for (uint32_t rank = 1; rank < 3; ++rank) {
    followers.push_back(std::make_unique<Follower>(transport_, times.names[rank]));
    followers.back()->Have(std::make_shared<RankSeat>(
        std::move((*ranks)[rank]), stage.spec,
        RankSeatConfig{.rank = rank, .times = times, .host = "127.0.0.1", .log = nullptr}));
  }
  LeaderShard leader(std::move((*ranks)[0]), times);
  auto channels = JoinFollowers(
      {1, 2, 3}, 5, 3, RankWire::kPlain,
      [&](const RankToJoin& join) {
        return AskToJoin(transport_, followers[join.rank - 1]->peer, kDeployment, join, kWait);
      },
      kWait);
  ASSERT_TRUE(channels.ok()) << channels.status();
  leader.Join(*std::move(channels));
  const std::vector<uint32_t> ids = {3, 4, 5};
  const std::vector<PageId> pages = {7};
  const std::vector<PageTableView> tables = {{0, pages}};
  const std::vector<BatchItem> items = {{0, 3, 0, tables}};
  EXPECT_TRUE(leader.Begin({3, ids, items}).ok());
  EXPECT_TRUE(leader.Embed().ok());
  const absl::Status computed = leader.Attention(0);
  EXPECT_TRUE(computed.ok()) << computed;
}

TEST_F(RanksServiceTest, WhoIsNotTheOneOrHasNoSuchRankSaysSo) {
  Follower follower(transport_, "w1");
  const RankToJoin join = {.epoch = 1, .rank = 1, .ranks = 2};
  const absl::Status none = Ask(follower.peer, join);
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound) << none;
  EXPECT_EQ(ReasonOf(none), "NO_DEPLOYMENT");
  RankPeer other = follower.peer;
  other.incarnation = 78;
  EXPECT_EQ(ReasonOf(Ask(other, join)), "WRONG_NODE");
  other = follower.peer;
  other.node = "w2";
  EXPECT_EQ(ReasonOf(Ask(other, join)), "WRONG_NODE");
}

TEST_F(RanksServiceTest, WhatIsNoJoinIsRefused) {
  const MadeUpModel model({.heads = 6, .kv_heads = 2});
  const MadeUpStage stage = WholeModel(model);
  const auto backends = BackendsOf(2);
  auto ranks = LoadRanks(backends, std::vector<double>{1, 1}, stage.spec, model, nullptr, nullptr);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const TurnedClock clock;  // Stands still.
  Follower follower(transport_, "w1");
  follower.Have(
      std::make_shared<RankSeat>(std::move((*ranks)[1]), stage.spec,
                                 RankSeatConfig{.rank = 1,
                                                .times = {.clock = &clock, .names = {"w0", "w1"}},
                                                .host = "127.0.0.1",
                                                .log = nullptr}));
  const auto reason = [&](const RankToJoin& join) { return ReasonOf(Ask(follower.peer, join)); };
  EXPECT_EQ(reason({.epoch = 1, .rank = 0, .ranks = 2}), "RANK_JOIN");
  EXPECT_EQ(reason({.epoch = 1, .rank = 2, .ranks = 2}), "RANK_JOIN");
  EXPECT_EQ(reason({.epoch = 1, .rank = 1, .ranks = 9}), "RANK_JOIN");
  EXPECT_EQ(reason({.epoch = 1, .rank = 1, .ranks = 2, .lower = {{"", 9}}}), "RANK_JOIN");
  EXPECT_EQ(reason({.epoch = 1, .rank = 1, .ranks = 2, .lower = {{"127.0.0.1", 0}}}), "RANK_JOIN");
  EXPECT_EQ(reason({.epoch = 1, .rank = 1, .ranks = 2}), "");
  EXPECT_EQ(ReasonOf(Ask(follower.peer, {.epoch = 2, .rank = 1, .ranks = 2}, 9)), "NO_DEPLOYMENT");
}

}  // namespace
}  // namespace strata::testing
