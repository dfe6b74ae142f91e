// A stage over several emulated devices that NCCL joins, by the stand-in of its calls: the bits of
// one device, and what a call that fails in the midst of a step leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/worker/backend/cuda/nccl/stand_in_nccl.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/chosen_devices.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"
#include "worker/backend/cuda/emulation/streams.h"
#include "worker/backend/cuda/nccl/nccl_library.h"
#include "worker/backend/shard.h"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;

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

// As workers join their devices.
absl::StatusOr<std::unique_ptr<Backend>> Over(const std::vector<double>& shares) {
  std::vector<cuda::DeviceRank> ranks;
  for (const double share : shares) {
    ranks.push_back(
        {cuda::MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = kOnceAwaited}), share});
  }
  ASSIGN_OR_RETURN(cuda::JoinDevices join, cuda::JoinByNccl(StandInNccl::calls()));
  return cuda::MakeBackendOver(ranks, std::move(join));
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

TEST(NcclStage, ACallThatFailsIsALostRankAndTheNextStepIsComputed) {
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
      EXPECT_EQ(ReasonOf(failed.status()), kRanksBroken) << failed.status();
      EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_EQ(DetailOf(failed.status()).facts().at("cause"), cuda::kNcclFailed);
      EXPECT_THAT(failed.status().message(), HasSubstr("lost a rank: nccl"));
      // Nor are ranks joined while joining fails, be it for a step or for a fence.
      nccl.Fail(NcclCall::kInit, cuda::NcclResult::kSystemError, rank);
      for (const absl::Status& status :
           {(*forward)->Run(kIds).status(), (*forward)->shards()[0]->BeginEpoch(2)}) {
        EXPECT_EQ(ReasonOf(status), kRanksBroken) << status;
        EXPECT_THAT(status.message(), HasSubstr("does not join: ncclCommInitRankConfig"));
      }
      nccl.Fail(NcclCall::kInit, cuda::NcclResult::kSuccess, rank);
      nccl.Fail(call, cuda::NcclResult::kSuccess, rank);
      const absl::Status joined = (*forward)->shards()[0]->BeginEpoch(3);
      ASSERT_TRUE(joined.ok()) << joined;
      const auto rows = (*forward)->Run(kIds);
      ASSERT_TRUE(rows.ok()) << rows.status();
      EXPECT_EQ(LogitsOf(*rows), expected);
    }
  }
  EXPECT_EQ(nccl.misuses(), 0);
}

}  // namespace
}  // namespace strata::testing
