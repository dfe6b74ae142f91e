// A worker that keeps packed weights of single layers for a load that may come.
#include "worker/service/layer_keeper.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/worker/service/worker_node_fixture.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::FakeCoordinator;

class LayerKeeperTest : public WorkerNodeTest {
 protected:
  v1::CoordinatorMessage Keep(FakeCoordinator* coordinator, uint32_t layer) {
    const auto layers = static_cast<uint32_t>(checkpoint_.spec.layers.size());
    v1::CoordinatorMessage message;
    message.mutable_keep_layer()->set_deployment(kDeployment);
    *message.mutable_keep_layer()->mutable_load() = LoadOf(coordinator, layer, layers, 3).load();
    return message;
  }
  static v1::CoordinatorMessage DropAll() {
    v1::CoordinatorMessage message;
    message.mutable_drop_layers()->set_deployment(kDeployment);
    return message;
  }
  static v1::LayerKept TakeKept(FakeCoordinator* coordinator) {
    return coordinator->Take("w0", [](const v1::WorkerMessage& m) { return m.has_layer_kept(); })
        .layer_kept();
  }
  // Until the worker has taken all that was sent before.
  static void WaitTaken(FakeCoordinator* coordinator) {
    v1::CoordinatorMessage message;
    message.mutable_compute_layers()->set_check(9);
    message.mutable_compute_layers()->mutable_load()->set_first_layer(1);
    coordinator->Send("w0", message);
    coordinator->Take("w0", [](const v1::WorkerMessage& m) { return m.has_layers_computed(); });
  }
  size_t PackedFiles() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(Dir("w0") + "/packed")) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }
};

TEST_F(LayerKeeperTest, WhatWasPackedForALayerGoesWithIt) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  coordinator.Send("w0", Keep(&coordinator, 1));
  const v1::LayerKept kept = TakeKept(&coordinator);
  EXPECT_FALSE(kept.has_error()) << kept.DebugString();
  EXPECT_EQ(kept.layer(), 1u);
  EXPECT_GT(kept.bytes(), 0u);
  EXPECT_EQ(w0.Report().standby_bytes, kept.bytes());
  EXPECT_GT(PackedFiles(), 0u);
  coordinator.Send("w0", DropAll());
  EXPECT_TRUE(coordinator.Wait([&] { return PackedFiles() == 0; }));
  EXPECT_EQ(w0.Report().standby_bytes, 0u);
}

TEST_F(LayerKeeperTest, WhatWasThereBeforeStays) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 3));
  ASSERT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
  v1::CoordinatorMessage unload;
  unload.mutable_unload()->set_deployment(kDeployment);
  coordinator.Send("w0", unload);
  const size_t before = PackedFiles();
  ASSERT_GT(before, 0u);
  coordinator.Send("w0", Keep(&coordinator, 1));
  EXPECT_FALSE(TakeKept(&coordinator).has_error());
  coordinator.Send("w0", DropAll());
  coordinator.Send("w0", Keep(&coordinator, 1));
  EXPECT_FALSE(TakeKept(&coordinator).has_error());
  EXPECT_EQ(PackedFiles(), before);
}

TEST_F(LayerKeeperTest, ALayerThatIsDroppedWhileItIsMadeIsNotAnsweredAndMayBeKeptAgain) {
  Mutex mutex;
  CondVar changed;
  bool held = false;
  bool go_on = false;
  const auto watch = [&](uint64_t, uint64_t) {
    MutexLock lock(&mutex);
    held = true;
    changed.NotifyAll();
    while (!go_on) {
      changed.Wait(&mutex);
    }
  };
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator, uint64_t{1} << 30, watch);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  coordinator.Send("w0", Keep(&coordinator, 1));
  {
    MutexLock lock(&mutex);
    while (!held) {
      changed.Wait(&mutex);
    }
  }
  coordinator.Send("w0", DropAll());
  coordinator.Send("w0", Keep(&coordinator, 1));
  WaitTaken(&coordinator);
  {
    MutexLock lock(&mutex);
    go_on = true;
    changed.NotifyAll();
  }
  const v1::LayerKept kept = TakeKept(&coordinator);
  EXPECT_FALSE(kept.has_error()) << kept.DebugString();
  EXPECT_GT(kept.bytes(), 0u);
  coordinator.Send("w0", DropAll());
  EXPECT_TRUE(coordinator.Wait([&] { return PackedFiles() == 0; }));
}

}  // namespace
}  // namespace strata
