// A stage over several emulated devices that NCCL joins, by the stand-in of its calls: the bits of
// one device, and what a call that fails in the midst of a step leaves.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "tests/worker/backend/cuda/nccl/stand_in_nccl.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"
#include "worker/backend/cuda/emulation/streams.h"
#include "worker/backend/cuda/nccl/nccl_collective.h"
#include "worker/backend/cuda/nccl/nccl_library.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;
// Streams are done once the host waits for them: by then all ranks have put theirs.
constexpr uint64_t kOnceAwaited = 1;
const std::vector<uint32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

void PutOnEmulated(cuda::Stream stream, std::function<bool()> work) {
  static_cast<cuda_emulation::EmulatedStream*>(stream)->Put([work = std::move(work)] {
    while (!work()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}

absl::StatusOr<std::unique_ptr<Backend>> Over(const std::vector<double>& shares) {
  static const SystemClock clock;
  std::vector<cuda::DeviceRank> ranks;
  for (const double share : shares) {
    ranks.push_back(
        {cuda::MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = kOnceAwaited}), share});
  }
  return cuda::MakeBackendOver(ranks, [](std::span<const std::shared_ptr<cuda::Device>> devices) {
    return cuda::MakeNcclCollectives(StandInNccl::calls(), devices, {.clock = &clock});
  });
}

std::vector<float> LogitsOnCpu(const MadeUpModel& model) {
  const auto cpu = *MakeCpuBackend({.threads = 1});
  const auto forward = *ForwardModel::Load(cpu.get(), model.spec(), model, {});
  return LogitsOf(*forward->Run(kIds));
}

TEST(NcclStage, HasTheBitsOfOneDevice) {
  StandInNccl nccl(PutOnEmulated);
  // Of panels that two ranks divide evenly, and of others.
  for (const uint32_t hidden : {64, 40}) {
    const MadeUpModel model({.layers = 2, .hidden = hidden});
    const std::vector<float> expected = LogitsOnCpu(model);
    for (const std::vector<double>& shares : {std::vector<double>{1, 1}, {2, 1, 1}}) {
      const auto backend = Over(shares);
      ASSERT_TRUE(backend.ok()) << backend.status();
      const auto forward = ForwardModel::Load(backend->get(), model.spec(), model, {});
      ASSERT_TRUE(forward.ok()) << forward.status();
      for (const uint32_t chunk : {0, 1}) {
        const auto rows = (*forward)->Run(kIds, chunk);
        ASSERT_TRUE(rows.ok()) << rows.status();
        EXPECT_EQ(LogitsOf(*rows), expected) << hidden << " " << shares.size() << " " << chunk;
      }
    }
  }
  EXPECT_GT(nccl.count(NcclCall::kAllGather), 0u);
  EXPECT_GT(nccl.count(NcclCall::kBroadcast), 0u);
  EXPECT_EQ(nccl.misuses(), 0);
  EXPECT_EQ(nccl.live(), 0);
}

TEST(NcclStage, ACallThatFailsIsTheStepsErrorAndTheNextStepIsComputed) {
  StandInNccl nccl(PutOnEmulated);
  const MadeUpModel model({.layers = 2, .hidden = 64});
  const std::vector<float> expected = LogitsOnCpu(model);
  const auto backend = Over({1, 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto forward = ForwardModel::Load(backend->get(), model.spec(), model, {});
  ASSERT_TRUE(forward.ok()) << forward.status();
  for (const int rank : {0, 1}) {
    for (const NcclCall call : {NcclCall::kAllGather, NcclCall::kBroadcast}) {
      nccl.Fail(call, cuda::NcclResult::kInternalError, rank);
      const auto failed = (*forward)->Run(kIds);
      EXPECT_EQ(ReasonOf(failed.status()), cuda::kNcclFailed) << failed.status();
      // Nor are ranks joined while joining fails.
      nccl.Fail(NcclCall::kInit, cuda::NcclResult::kSystemError, rank);
      EXPECT_EQ(ReasonOf((*forward)->Run(kIds).status()), cuda::kNcclFailed);
      nccl.Fail(NcclCall::kInit, cuda::NcclResult::kSuccess, rank);
      nccl.Fail(call, cuda::NcclResult::kSuccess, rank);
      const auto rows = (*forward)->Run(kIds);
      ASSERT_TRUE(rows.ok()) << rows.status();
      EXPECT_EQ(LogitsOf(*rows), expected);
    }
  }
  EXPECT_EQ(nccl.misuses(), 0);
}

}  // namespace
}  // namespace strata::testing
