// A worker that computes layer by layer for a check, against the stages that it is loaded as.
#include "worker/service/layer_reference.h"

#include <gmock/gmock.h>

#include "tests/worker/service/worker_node_fixture.h"

namespace strata {
namespace {

using testing::FakeCoordinator;
using ::testing::HasSubstr;

class LayerReferenceTest : public WorkerNodeTest {
 protected:
  void SetUp() override {
    WorkerNodeTest::SetUp();
    layers_ = static_cast<uint32_t>(checkpoint_.spec.layers.size());
    std::vector<uint32_t> greedy;
    GoldenCase(&ids_, &greedy);
  }

  // `rows` at once.
  v1::CoordinatorMessage Layer(FakeCoordinator* coordinator, uint64_t check, uint32_t layer,
                               uint32_t rows = 8) {
    v1::CoordinatorMessage message;
    v1::ComputeLayers* compute = message.mutable_compute_layers();
    compute->set_check(check);
    *compute->mutable_load() = LoadOf(coordinator, layer, layers_, 3).load();
    compute->mutable_load()->set_max_batch_tokens(rows);
    if (layer == 0) {
      compute->mutable_token_ids()->Add(ids_.begin(), ids_.end());
    }
    return message;
  }
  static v1::LayersComputed Ask(FakeCoordinator* coordinator,
                                const v1::CoordinatorMessage& message) {
    coordinator->Send("w0", message);
    return coordinator
        ->Take("w0", [](const v1::WorkerMessage& m) { return m.has_layers_computed(); })
        .layers_computed();
  }
  // What every layer makes of ids_, and last the logits.
  std::vector<std::vector<uint64_t>> Check(FakeCoordinator* coordinator, uint64_t check,
                                           uint32_t rows) {
    std::vector<std::vector<uint64_t>> digests;
    for (uint32_t layer = 0; layer < layers_; ++layer) {
      const v1::LayersComputed computed = Ask(coordinator, Layer(coordinator, check, layer, rows));
      EXPECT_FALSE(computed.has_error()) << computed.DebugString();
      EXPECT_EQ(computed.check(), check);
      EXPECT_EQ(computed.done(), layer + 1 == layers_);
      if (computed.layers_size() != 1) return digests;
      EXPECT_EQ(computed.layers(0).layer(), layer);
      digests.emplace_back(computed.layers(0).rows().begin(), computed.layers(0).rows().end());
      if (computed.done()) {
        digests.emplace_back(computed.logits().begin(), computed.logits().end());
      }
    }
    return digests;
  }
  // The same of a stage with all layers, loaded and linked as usual.
  std::vector<std::vector<uint64_t>> OfOneStage(FakeCoordinator* coordinator) {
    coordinator->Send("w0", LoadOf(coordinator, 0, 1, 3));
    EXPECT_EQ(WaitLoaded(coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
    Fence(coordinator, "w0", 3);
    WaitFenced(coordinator, "w0");
    auto link = OpenFirst(coordinator, 3);
    EXPECT_TRUE(link.ok()) << link.status();
    StepMessage step;
    step.header.set_deployment(kDeployment);
    step.header.set_epoch(3);
    step.header.set_step(1);
    step.header.set_rows(static_cast<uint32_t>(ids_.size()));
    v1::StepItem* item = step.header.add_items();
    *item->mutable_sequence() = testing::Name("check", 1);
    item->set_fingerprint(FingerprintRoot(kDeployment, kModelDigest, kClassName, "", 0));
    *item->mutable_params() = testing::Greedy();
    item->mutable_params()->set_prompt_length(static_cast<uint32_t>(ids_.size()));
    item->mutable_token_ids()->Add(ids_.begin(), ids_.end());
    item->set_digest_layers(true);
    EXPECT_TRUE((*link)->Send(std::move(step)).ok());
    const ResultMessage result = coordinator->TakeResult();
    std::vector<std::vector<uint64_t>> digests;
    for (const v1::LayerDigest& digest : result.header.items(0).layer_digests()) {
      digests.emplace_back(digest.rows().begin(), digest.rows().end());
    }
    return digests;
  }

  uint32_t layers_ = 0;
  std::vector<uint32_t> ids_;
};

TEST_F(LayerReferenceTest, LayersAloneMakeWhatAStageWithAllOfThemMakes) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const auto alone = Check(&coordinator, 1, 8);
  ASSERT_EQ(alone.size(), layers_ + 1);
  ASSERT_EQ(alone[layers_].size(), ids_.size());
  EXPECT_EQ(Check(&coordinator, 2, 1), alone);
  EXPECT_EQ(OfOneStage(&coordinator), alone);
  // Beside the loaded stage, and of other tokens it is something else.
  EXPECT_EQ(Check(&coordinator, 3, 64), alone);
  ids_[20] += 1;
  const auto other = Check(&coordinator, 4, 8);
  EXPECT_EQ(std::vector(other[0].begin(), other[0].begin() + 20),
            std::vector(alone[0].begin(), alone[0].begin() + 20));
  EXPECT_NE(other[0][20], alone[0][20]);
}

TEST_F(LayerReferenceTest, RowsThatLayersBeforeMadeElsewhereAreAsGoodAsOwnOnes) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  Worker w1("w1", Dir("w1"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 2; }));
  const auto alone = Check(&coordinator, 1, 8);
  ASSERT_EQ(alone.size(), layers_ + 1);
  // Each layer anew, from the rows that the one before has given.
  std::string rows;
  for (uint32_t layer = 0; layer < layers_; ++layer) {
    v1::CoordinatorMessage message = Layer(&coordinator, 2, layer);
    v1::ComputeLayers* compute = message.mutable_compute_layers();
    if (layer > 0) {
      compute->mutable_token_ids()->Add(ids_.begin(), ids_.end());
      compute->set_rows(rows);
    }
    compute->set_returns_rows(true);
    const v1::LayersComputed computed = Ask(&coordinator, message);
    ASSERT_FALSE(computed.has_error()) << computed.DebugString();
    EXPECT_EQ(
        std::vector<uint64_t>(computed.layers(0).rows().begin(), computed.layers(0).rows().end()),
        alone[layer]);
    rows = computed.rows();
    EXPECT_EQ(rows.size(), ids_.size() * checkpoint_.spec.hidden * sizeof(float));
  }
  // What no layer has made is refused.
  const auto refused = [&](const std::string& given, uint32_t layer) {
    v1::CoordinatorMessage message = Layer(&coordinator, 3, layer);
    v1::ComputeLayers* compute = message.mutable_compute_layers();
    compute->clear_token_ids();
    compute->mutable_token_ids()->Add(ids_.begin(), ids_.end());
    compute->set_rows(given);
    return Ask(&coordinator, message).error().reason();
  };
  EXPECT_EQ(refused(rows, 0), "BAD_CHECK");
  EXPECT_EQ(refused(rows.substr(4), 1), "BAD_CHECK");
  EXPECT_EQ(refused(rows.substr(1), 1), "BAD_CHECK");
  EXPECT_EQ(refused(std::string(rows.size(), '\xff'), 1), "BAD_CHECK") << "no numbers";
}

TEST_F(LayerReferenceTest, ThereIsOneCheckAtATime) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  ASSERT_FALSE(Ask(&coordinator, Layer(&coordinator, 1, 0)).has_error());
  const v1::LayersComputed second = Ask(&coordinator, Layer(&coordinator, 2, 0));
  EXPECT_EQ(second.error().reason(), "CHECK_RUNNING");
  EXPECT_EQ(second.error().node(), "w0");
  EXPECT_EQ(second.check(), 2u);
  EXPECT_EQ(Ask(&coordinator, Layer(&coordinator, 2, 1)).error().reason(), "CHECK_UNKNOWN");
  // The first goes on, until it is ended.
  EXPECT_FALSE(Ask(&coordinator, Layer(&coordinator, 1, 1)).has_error());
  v1::CoordinatorMessage end;
  end.mutable_compute_layers()->set_check(2);
  coordinator.Send("w0", end);  // Not this one.
  EXPECT_EQ(Ask(&coordinator, Layer(&coordinator, 2, 0)).error().reason(), "CHECK_RUNNING");
  end.mutable_compute_layers()->set_check(1);
  coordinator.Send("w0", end);
  EXPECT_EQ(Ask(&coordinator, Layer(&coordinator, 1, 2)).error().reason(), "CHECK_UNKNOWN");
  v1::LayersComputed next;
  do {
    next = Ask(&coordinator, Layer(&coordinator, 3, 0));
  } while (next.error().reason() == "CHECK_RUNNING");  // Until the other's memory is free.
  EXPECT_FALSE(next.has_error()) << next.DebugString();
}

TEST_F(LayerReferenceTest, WhatCannotBeComputedFailsTypedAndEndsTheCheck) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const auto refused = [&](const std::function<void(v1::ComputeLayers*)>& spoil) {
    v1::CoordinatorMessage message = Layer(&coordinator, 1, 0);
    spoil(message.mutable_compute_layers());
    const v1::LayersComputed computed = Ask(&coordinator, message);
    EXPECT_EQ(computed.layers_size(), 0);
    return computed.error();
  };
  const v1::ErrorDetail memory =
      refused([](auto* m) { m->mutable_load()->set_kv_pages(0, 10'000'000); });
  EXPECT_EQ(memory.reason(), "MEMORY_LIMIT");
  EXPECT_THAT(memory.limit(), HasSubstr("memory_bytes="));
  EXPECT_THAT(memory.hint(), HasSubstr("--node"));
  EXPECT_EQ(memory.node(), "w0");
  EXPECT_EQ(
      refused([](auto* m) { m->mutable_load()->set_numerics_class("mlx-1/w=bf16"); }).reason(),
      "NUMERICS_CLASS");
  EXPECT_EQ(refused([](auto* m) { m->set_token_ids(3, 1 << 20); }).reason(), "BAD_CHECK");
  EXPECT_EQ(refused([](auto* m) {
              const auto tokens = m->token_ids();  // Adding moves its own.
              m->mutable_token_ids()->Add(tokens.begin(), tokens.end());
              m->mutable_load()->set_kv_pages(0, 4);
            }).reason(),
            "BAD_CHECK");
  EXPECT_EQ(refused([](auto* m) {
              while (m->token_ids_size() <= 256) m->add_token_ids(1);
            }).reason(),
            "BAD_CHECK");
  EXPECT_EQ(refused([](auto* m) { m->set_check(0); }).reason(), "BAD_CHECK");
  EXPECT_EQ(refused([](auto* m) { m->mutable_load()->mutable_tensors()->RemoveLast(); }).reason(),
            "BAD_LOAD");
  ASSERT_FALSE(Ask(&coordinator, Layer(&coordinator, 2, 0)).has_error());
  EXPECT_EQ(Ask(&coordinator, Layer(&coordinator, 2, 2)).error().reason(), "BAD_CHECK");
  EXPECT_EQ(Ask(&coordinator, Layer(&coordinator, 2, 1)).error().reason(), "CHECK_UNKNOWN");
  EXPECT_EQ(Check(&coordinator, 3, 8).size(), layers_ + 1);
}

TEST_F(LayerReferenceTest, AStageThatNeedsTheMemoryEndsTheCheck) {
  FakeCoordinator coordinator;
  constexpr uint64_t kMemory = uint64_t{64} << 20;
  Worker w0("w0", Dir("w0"), coordinator, kMemory);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const uint64_t page = kPageTokens * KvBytesPerToken(checkpoint_.spec, 0, 0, 0, sizeof(float));
  v1::CoordinatorMessage message = Layer(&coordinator, 1, 0);
  message.mutable_compute_layers()->mutable_load()->set_kv_pages(0, kMemory / 4 / page);
  ASSERT_FALSE(Ask(&coordinator, message).has_error());
  v1::CoordinatorMessage load = LoadOf(&coordinator, 0, 1, 3);
  load.mutable_load()->set_kv_pages(0, kMemory / 2 / (page * layers_));
  coordinator.Send("w0", load);
  const v1::LoadProgress loaded = WaitLoaded(&coordinator, "w0");
  EXPECT_EQ(loaded.phase(), v1::LoadProgress::PHASE_READY) << loaded.DebugString();
  const v1::LayersComputed computed = Ask(&coordinator, Layer(&coordinator, 1, 1));
  EXPECT_EQ(computed.error().reason(), "CHECK_GAVE_WAY") << computed.DebugString();
  EXPECT_EQ(Check(&coordinator, 2, 8).size(), layers_ + 1);
}

}  // namespace
}  // namespace strata
