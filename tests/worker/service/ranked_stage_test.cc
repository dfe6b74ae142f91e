// One stage over two workers, each of which was told its rank.
#include <functional>
#include <string>
#include <vector>

#include "common/footprint/footprint.h"
#include "common/model/rank_outputs.h"
#include "tests/eventually.h"
#include "tests/worker/service/worker_node_fixture.h"
#include "worker/service/stage_loader.h"

namespace strata {
namespace {

using testing::FakeCoordinator;
using ::testing::HasSubstr;

class RankedStageTest : public WorkerNodeTest {
 protected:
  // The whole model, of which w0 has the first rank and w1 the second.
  v1::CoordinatorMessage LoadOfRank(FakeCoordinator* coordinator, uint32_t rank, uint64_t epoch) {
    v1::CoordinatorMessage message = LoadOf(coordinator, 0, 1, epoch);
    v1::RanksOfLoad* const ranks = message.mutable_load()->mutable_ranks();
    ranks->set_rank(rank);
    for (uint32_t i = 0; i < 2; ++i) {
      const v1::NodeInfo node = coordinator->Node("w" + std::to_string(i));
      v1::RankOfLoad* const one = ranks->add_of();
      one->mutable_worker()->set_node(node.name());
      one->mutable_worker()->set_incarnation(node.incarnation());
      one->mutable_worker()->set_address(node.address());
      one->set_share_begin(i * kShareParts / 2);
      one->set_share_end((i + 1) * kShareParts / 2);
    }
    return message;
  }
  void LoadRank(FakeCoordinator* coordinator, uint32_t rank, uint64_t epoch) {
    const std::string node = "w" + std::to_string(rank);
    coordinator->Send(node, LoadOfRank(coordinator, rank, epoch));
    const v1::LoadProgress loaded = WaitLoaded(coordinator, node);
    ASSERT_EQ(loaded.phase(), v1::LoadProgress::PHASE_READY) << loaded.DebugString();
  }
};

TEST_F(RankedStageTest, TwoWorkersAreRanksOfOneStageAndGiveTheGoldenIds) {
  FakeCoordinator coordinator;
  std::vector<uint32_t> prompt;
  std::vector<uint32_t> greedy;
  GoldenCase(&prompt, &greedy);
  Worker w0("w0", Dir("w0"), coordinator);
  Worker w1("w1", Dir("w1"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 2; }));
  EXPECT_TRUE(coordinator.Node("w0").ranks());
  ASSERT_NO_FATAL_FAILURE(LoadRank(&coordinator, 0, 3));
  ASSERT_NO_FATAL_FAILURE(LoadRank(&coordinator, 1, 3));
  Fence(&coordinator, "w0", 3);
  const v1::FenceAck ack = WaitFenced(&coordinator, "w0");
  ASSERT_FALSE(ack.has_error()) << ack.DebugString();
  auto link = OpenFirst(&coordinator, 3);
  ASSERT_TRUE(link.ok()) << link.status();
  uint64_t step = 0;
  EXPECT_EQ(Generate(&coordinator, link->get(), 3, 1, prompt, 24, &step), greedy);
  // Another epoch goes on with the same ranks.
  Fence(&coordinator, "w0", 4);
  ASSERT_FALSE(WaitFenced(&coordinator, "w0").has_error());
  link = OpenFirst(&coordinator, 4);
  ASSERT_TRUE(link.ok()) << link.status();
}

TEST_F(RankedStageTest, AFollowerThatIsLostIsAFaultOfTheStage) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  auto w1 = std::make_unique<Worker>("w1", Dir("w1"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 2; }));
  ASSERT_NO_FATAL_FAILURE(LoadRank(&coordinator, 0, 3));
  ASSERT_NO_FATAL_FAILURE(LoadRank(&coordinator, 1, 3));
  Fence(&coordinator, "w0", 3);
  ASSERT_FALSE(WaitFenced(&coordinator, "w0").has_error());
  auto link = OpenFirst(&coordinator, 3);
  ASSERT_TRUE(link.ok()) << link.status();
  uint64_t step = 0;
  Generate(&coordinator, link->get(), 3, 1, {1, 2, 3}, 2, &step);
  w1 = nullptr;
  StepMessage message;
  message.header.set_deployment(kDeployment);
  message.header.set_epoch(3);
  message.header.set_step(++step);
  message.header.set_committed_step(step - 1);
  message.header.set_rows(1);
  v1::StepItem* const item = message.header.add_items();
  *item->mutable_sequence() = testing::Name("other", 9);
  item->set_fingerprint(FingerprintRoot(kDeployment, kModelDigest, kClassName, "", 0));
  item->set_sample(true);
  *item->mutable_params() = testing::Greedy();
  item->mutable_params()->set_prompt_length(1);
  item->add_token_ids(5);
  ASSERT_TRUE((*link)->Send(std::move(message)).ok());
  const v1::LinkFault fault =
      coordinator.Take("w0", [](const v1::WorkerMessage& m) { return m.has_link_fault(); })
          .link_fault();
  EXPECT_EQ(fault.error().reason(), "RANKS_BROKEN") << fault.DebugString();
  EXPECT_THAT(fault.error().message(), HasSubstr("rank 1 (w1)"));
  EXPECT_EQ(fault.error().node(), "w1");
  // It is not there for the next epoch either.
  Fence(&coordinator, "w0", 4);
  const v1::FenceAck ack = WaitFenced(&coordinator, "w0");
  ASSERT_TRUE(ack.has_error());
  EXPECT_THAT(ack.error().message(), HasSubstr("w1"));
  EXPECT_EQ(ack.error().node(), "w1");
}

TEST_F(RankedStageTest, AnEpochDoesNotBeginWithoutARank) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  Worker w1("w1", Dir("w1"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 2; }));
  ASSERT_NO_FATAL_FAILURE(LoadRank(&coordinator, 0, 3));
  Fence(&coordinator, "w0", 3);
  const v1::FenceAck without = WaitFenced(&coordinator, "w0");
  EXPECT_EQ(without.error().reason(), "RANKS_BROKEN") << without.DebugString();
  EXPECT_THAT(without.error().message(), HasSubstr("rank 1 on node 'w1'"));
  ASSERT_NO_FATAL_FAILURE(LoadRank(&coordinator, 1, 3));
  Fence(&coordinator, "w0", 4);
  EXPECT_FALSE(WaitFenced(&coordinator, "w0").has_error());
}

TEST_F(RankedStageTest, ALoadCountsWhatItsRankTakes) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  Worker w1("w1", Dir("w1"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 2; }));
  const auto backend = *MakeCpuBackend({.threads = 1});
  const auto whole = CheckLoad(LoadOf(&coordinator, 0, 1, 3).load(), *backend);
  ASSERT_TRUE(whole.ok()) << whole.status();
  uint64_t kv = 0;
  for (const uint32_t rank : {0u, 1u}) {
    const auto one = CheckLoad(LoadOfRank(&coordinator, rank, 3).load(), *backend);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->place->rank, rank);
    EXPECT_LT(one->weight_bytes, whole->weight_bytes);
    kv += one->kv_bytes;
  }
  EXPECT_EQ(kv, whole->kv_bytes);  // It has as many KV heads as ranks.
}

TEST_F(RankedStageTest, RanksThatCannotBeAreRefused) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  Worker w1("w1", Dir("w1"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 2; }));
  const auto backend = *MakeCpuBackend({.threads = 1});
  const auto refused = [&](const std::function<void(v1::RanksOfLoad*)>& change) {
    v1::Load load = LoadOfRank(&coordinator, 1, 3).load();
    change(load.mutable_ranks());
    return ReasonOf(CheckLoad(load, *backend).status()) == "BAD_LOAD";
  };
  EXPECT_FALSE(refused([](v1::RanksOfLoad*) {}));
  EXPECT_TRUE(refused([](v1::RanksOfLoad* ranks) { ranks->set_rank(2); }));
  EXPECT_TRUE(refused([](v1::RanksOfLoad* ranks) { ranks->mutable_of()->RemoveLast(); }));
  EXPECT_TRUE(refused([](v1::RanksOfLoad* ranks) { ranks->mutable_of(0)->set_share_end(5); }));
  EXPECT_TRUE(refused([](v1::RanksOfLoad* ranks) { ranks->mutable_of(1)->set_share_end(65535); }));
  EXPECT_TRUE(refused([](v1::RanksOfLoad* ranks) { ranks->mutable_of(1)->set_share_begin(9); }));
  EXPECT_TRUE(refused([](v1::RanksOfLoad* ranks) { *ranks->add_of() = ranks->of(1); }));
}

}  // namespace
}  // namespace strata
