// A Load that differs from the one before in its KV only.
#include "tests/worker/service/worker_node_fixture.h"
#include "worker/node/same_load.h"

namespace strata {
namespace {

using testing::FakeCoordinator;

class ResizeTest : public WorkerNodeTest {
 protected:
  v1::LoadProgress Load(FakeCoordinator* coordinator, uint64_t epoch, uint64_t pages) {
    v1::CoordinatorMessage message = LoadOf(coordinator, 0, 1, epoch);
    message.mutable_load()->set_kv_pages(0, pages);
    coordinator->Send("w0", message);
    return WaitLoaded(coordinator, "w0");
  }

  std::vector<uint32_t> Answer(FakeCoordinator* coordinator, uint64_t epoch, uint64_t generation,
                               const std::vector<uint32_t>& prompt) {
    Fence(coordinator, "w0", epoch);
    const v1::FenceAck ack = WaitFenced(coordinator, "w0");
    EXPECT_FALSE(ack.has_error()) << ack.DebugString();
    auto link = OpenFirst(coordinator, epoch);
    if (!link.ok()) {
      ADD_FAILURE() << link.status();
      return {};
    }
    uint64_t step = 0;
    return Generate(coordinator, link->get(), epoch, generation, prompt, 24, &step);
  }
};

TEST_F(ResizeTest, WeightsStayAndTheAnswerIsTheSame) {
  FakeCoordinator coordinator;
  std::vector<uint32_t> prompt;
  std::vector<uint32_t> greedy;
  GoldenCase(&prompt, &greedy);
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  ASSERT_EQ(Load(&coordinator, 3, 32).phase(), v1::LoadProgress::PHASE_READY);
  EXPECT_EQ(Answer(&coordinator, 3, 1, prompt), greedy);
  const uint64_t fetched = w0.fetched_bytes();
  // What is read again from now on would have to be fetched again.
  std::filesystem::remove_all(Dir("w0"));
  uint64_t epoch = 3;
  for (const uint64_t pages : {64u, 4u}) {
    const v1::LoadProgress loaded = Load(&coordinator, ++epoch, pages);
    ASSERT_EQ(loaded.phase(), v1::LoadProgress::PHASE_READY) << loaded.DebugString();
    EXPECT_EQ(Answer(&coordinator, epoch, epoch, prompt), greedy);
  }
  EXPECT_EQ(w0.fetched_bytes(), fetched);
}

TEST_F(ResizeTest, AfterASizeThatDoesNotFitTheOldOneLoads) {
  FakeCoordinator coordinator;
  std::vector<uint32_t> prompt;
  std::vector<uint32_t> greedy;
  GoldenCase(&prompt, &greedy);
  Worker w0("w0", Dir("w0"), coordinator, /*memory_bytes=*/uint64_t{64} << 20);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  ASSERT_EQ(Load(&coordinator, 3, 32).phase(), v1::LoadProgress::PHASE_READY);
  const uint64_t fetched = w0.fetched_bytes();
  std::filesystem::remove_all(Dir("w0"));
  const v1::LoadProgress failed = Load(&coordinator, 4, 1'000'000);
  EXPECT_EQ(failed.phase(), v1::LoadProgress::PHASE_FAILED);
  EXPECT_EQ(failed.error().reason(), "MEMORY_LIMIT");
  ASSERT_EQ(Load(&coordinator, 5, 32).phase(), v1::LoadProgress::PHASE_READY);
  EXPECT_EQ(Answer(&coordinator, 5, 1, prompt), greedy);
  EXPECT_EQ(w0.fetched_bytes(), fetched);
}

TEST_F(ResizeTest, OnlyOtherKvIsTheSameLoad) {
  FakeCoordinator coordinator;
  const v1::Load load = LoadOf(&coordinator, 0, 1, 3).load();
  v1::Load other = load;
  other.set_epoch(4);
  other.set_kv_pages(0, 7);
  EXPECT_TRUE(SameButForKv(load, other));
  other = load;
  other.set_weights_digest("another");
  EXPECT_FALSE(SameButForKv(load, other));
  other = load;
  other.set_context(64);
  EXPECT_FALSE(SameButForKv(load, other));
  other = load;
  other.set_max_batch_tokens(65);
  EXPECT_FALSE(SameButForKv(load, other));
  other = load;
  other.set_kv_dtype(v1::KV_DTYPE_F16);
  EXPECT_FALSE(SameButForKv(load, other));
}

}  // namespace
}  // namespace strata
