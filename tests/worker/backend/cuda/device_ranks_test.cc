// A stage over several emulated devices: the bits of one, whenever streams work, and what is said
// when a device fails.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_collective.h"
#include "worker/backend/cuda/device/emulated_device.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;
const std::vector<uint32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

absl::StatusOr<std::unique_ptr<Backend>> Over(const std::vector<cuda::DeviceRank>& ranks) {
  static const SystemClock clock;
  return cuda::MakeBackendOver(
      ranks, [](std::span<const std::shared_ptr<cuda::Device>> devices, nanoseconds) {
        return cuda::MakeEmulatedCollectives(devices, {.clock = &clock});
      });
}

absl::StatusOr<std::vector<float>> LogitsOn(Backend* backend, const MadeUpModel& model) {
  auto forward = ForwardModel::Load(backend, model.spec(), model, {});
  RETURN_IF_ERROR(forward.status());
  auto rows = (*forward)->Run(kIds);
  RETURN_IF_ERROR(rows.status());
  return LogitsOf(*rows);
}

TEST(DeviceRanks, ComputeTheBitsOfOneWheneverStreamsWork) {
  const auto cpu = *MakeCpuBackend({.threads = 1});
  // The second embeds with its head's matrix, and has fewer KV heads than ranks.
  for (const MadeUpShape& shape :
       {MadeUpShape{.heads = 6, .kv_heads = 2}, MadeUpShape{.kv_heads = 1, .tied = true}}) {
    const MadeUpModel model(shape);
    const std::vector<float> expected = *LogitsOn(cpu.get(), model);
    for (const uint64_t order : {0, 1, 2, 3}) {
      const auto device = [order] {
        return cuda::MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = order});
      };
      const auto backend = Over({{device(), 2}, {device(), 1}, {device(), 1}});
      ASSERT_TRUE(backend.ok()) << backend.status();
      const auto logits = LogitsOn(backend->get(), model);
      ASSERT_TRUE(logits.ok()) << order << ": " << logits.status();
      EXPECT_EQ(*logits, expected) << shape.kv_heads << " KV heads, order " << order;
    }
  }
}

TEST(DeviceRanks, OneThatFailsIsTheStagesErrorAndNobodyWaits) {
  const MadeUpModel model({.layers = 2});
  for (const size_t failing : {0, 1}) {
    const auto fails = std::make_shared<std::atomic<bool>>(false);
    std::vector<cuda::DeviceRank> ranks;
    for (size_t rank = 0; rank < 2; ++rank) {
      cuda::DeviceFaults faults;
      faults.fails = [fails, here = rank == failing] { return here && fails->load(); };
      ranks.push_back({cuda::MakeEmulatedDevice(kDeviceBytes, std::move(faults)), 1});
    }
    const auto backend = Over(ranks);
    ASSERT_TRUE(backend.ok()) << backend.status();
    auto forward = ForwardModel::Load(backend->get(), model.spec(), model, {});
    ASSERT_TRUE(forward.ok()) << forward.status();
    ASSERT_TRUE((*forward)->Run(kIds).ok());
    fails->store(true);
    const auto failed = (*forward)->Run(kIds);
    EXPECT_EQ(ReasonOf(failed.status()), "DEVICE_FAILED") << failed.status();
    EXPECT_EQ(ReasonOf((*backend)->Health()), "DEVICE_FAILED");
    EXPECT_EQ(ReasonOf(LogitsOn(backend->get(), model).status()), "DEVICE_FAILED");
  }
}

TEST(DeviceRanks, ACallThatFailsAloneIsTheStepsErrorAndTheNextStepIsComputed) {
  const MadeUpModel model({.layers = 2});
  for (const size_t failing : {0, 1}) {
    // Calls until the one that fails.
    const auto left = std::make_shared<std::atomic<int64_t>>(0);
    std::vector<cuda::DeviceRank> ranks;
    for (size_t rank = 0; rank < 2; ++rank) {
      cuda::DeviceFaults faults;
      faults.fails_once = [left, here = rank == failing] {
        return here && left->fetch_sub(1) == 1;
      };
      ranks.push_back({cuda::MakeEmulatedDevice(kDeviceBytes, std::move(faults)), 1});
    }
    const auto backend = Over(ranks);
    ASSERT_TRUE(backend.ok()) << backend.status();
    const auto forward = ForwardModel::Load(backend->get(), model.spec(), model, {});
    ASSERT_TRUE(forward.ok()) << forward.status();
    const auto expected = (*forward)->Run(kIds);
    ASSERT_TRUE(expected.ok()) << expected.status();
    int64_t at = 1;
    for (; at < 10'000; at += 1 + at / 4) {
      left->store(at);
      const auto failed = (*forward)->Run(kIds);
      if (left->exchange(0) > 0) {
        break;  // There are no more.
      }
      EXPECT_EQ(ReasonOf(failed.status()), "DEVICE_CALL_FAILED") << at << ": " << failed.status();
      const auto rows = (*forward)->Run(kIds);
      ASSERT_TRUE(rows.ok()) << at << ": " << rows.status();
      EXPECT_EQ(LogitsOf(*rows), LogitsOf(*expected)) << at;
    }
    EXPECT_GT(at, 20);
  }
}

TEST(DeviceRanks, SharesThatCannotBeAreRefused) {
  const auto backend = Over(
      {{cuda::MakeEmulatedDevice(kDeviceBytes), 1}, {cuda::MakeEmulatedDevice(kDeviceBytes), 0}});
  EXPECT_EQ(ReasonOf(backend.status()), "RANKS_INVALID");
}

}  // namespace
}  // namespace strata::testing
