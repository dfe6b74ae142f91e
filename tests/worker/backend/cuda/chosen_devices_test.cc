// The devices that a worker is told to compute on, emulated: which are opened, what each has of
// stages, and what is refused.
#include "worker/backend/cuda/chosen_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/footprint/device_limits.h"
#include "common/status.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/device/emulated_collective.h"
#include "worker/backend/cuda/device/emulated_device.h"
#include "worker/backend/cuda/nccl/nccl_library.h"

namespace strata::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kDeviceBytes = 256 * kMiB;
const std::vector<uint32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6};

class ChosenDevices : public ::testing::Test {
 protected:
  cuda::DeviceDriver DriverOf(uint32_t count) {
    cuda::DeviceDriver driver;
    driver.count = count;
    driver.open = [this](uint32_t index) -> absl::StatusOr<std::shared_ptr<cuda::Device>> {
      opened_.push_back(index);
      return cuda::MakeEmulatedDevice(device_bytes_ + index * kMiB, {}, {.index = index});
    };
    driver.join = [this]() -> absl::StatusOr<cuda::JoinDevices> {
      ++joins_;
      return [this](std::span<const std::shared_ptr<cuda::Device>> devices, nanoseconds) {
        return cuda::MakeEmulatedCollectives(devices, {.clock = &clock_});
      };
    };
    return driver;
  }
  absl::StatusOr<std::unique_ptr<Backend>> Make(const std::string& devices, uint32_t count,
                                                uint64_t memory_bytes = 0) {
    ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevices(devices));
    return cuda::MakeBackendOnChosen(DriverOf(count),
                                     {.choice = choice, .memory_bytes = memory_bytes}, {});
  }

  SystemClock clock_;
  uint64_t device_bytes_ = kDeviceBytes;
  std::vector<uint32_t> opened_;
  int joins_ = 0;
};

TEST_F(ChosenDevices, AreTheFirstAloneWhereNoneIsNamed) {
  const auto backend = Make("", 4);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(opened_, ElementsAre(0));
  EXPECT_EQ(joins_, 0);  // NCCL is not asked for.
  EXPECT_TRUE((*backend)->facts().devices.empty());
  EXPECT_EQ((*backend)->facts().name, "emulated GPU");
  EXPECT_EQ((*backend)->facts().memory_bytes, kDeviceBytes);
}

TEST_F(ChosenDevices, AreOneOfSeveralAlone) {
  const auto backend = Make("2", 4);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(opened_, ElementsAre(2));
  EXPECT_EQ(joins_, 0);
  EXPECT_TRUE((*backend)->facts().devices.empty());
}

TEST_F(ChosenDevices, HaveTheSharesThatAreStatedInTheirOrder) {
  const auto backend = Make("2=2,0=1,1=1", 3);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(opened_, ElementsAre(2, 0, 1));
  const DeviceFacts facts = (*backend)->facts();
  EXPECT_EQ(facts.name, "3 x emulated GPU");
  ASSERT_EQ(facts.devices.size(), 3u);
  EXPECT_EQ(facts.devices[0].index, 2u);
  EXPECT_EQ(facts.devices[0].of_stage.share, (OutputRange{0, 32768}));
  EXPECT_EQ(facts.devices[1].of_stage.share, (OutputRange{32768, 49152}));
  EXPECT_EQ(facts.devices[2].of_stage.share, (OutputRange{49152, 65536}));
  // Nine tenths of what is free of each.
  EXPECT_EQ(facts.devices[0].of_stage.memory_bytes, (kDeviceBytes + 2 * kMiB) / 10 * 9);
  EXPECT_EQ(facts.memory_bytes, facts.devices[0].of_stage.memory_bytes +
                                    facts.devices[1].of_stage.memory_bytes +
                                    facts.devices[2].of_stage.memory_bytes);
}

TEST_F(ChosenDevices, GiveStagesTheMemoryThatIsStatedOfEach) {
  const auto backend = Make("0=1,1=1", 2, kDeviceBytes + kMiB / 2);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const DeviceFacts facts = (*backend)->facts();
  EXPECT_EQ(facts.devices[0].of_stage.memory_bytes, kDeviceBytes);  // It has no more.
  EXPECT_EQ(facts.devices[1].of_stage.memory_bytes, kDeviceBytes + kMiB / 2);
}

TEST_F(ChosenDevices, ComputeTheBitsOfOneOnTwoToFour) {
  const MadeUpModel model({.layers = 2, .heads = 6, .kv_heads = 2});
  const auto logits_on = [&](Backend* backend) -> absl::StatusOr<std::vector<float>> {
    auto forward = ForwardModel::Load(backend, model.spec(), model, {});
    RETURN_IF_ERROR(forward.status());
    auto rows = (*forward)->Run(kIds);
    RETURN_IF_ERROR(rows.status());
    return LogitsOf(*rows);
  };
  const auto cpu = *MakeCpuBackend({.threads = 1});
  const std::vector<float> expected = *logits_on(cpu.get());
  for (const char* devices : {"0=1,1=1", "1=3,0=1", "0=2,1=1,2=1", "0=1,1=1.5,3=1,2=1"}) {
    const auto backend = Make(devices, 4);
    ASSERT_TRUE(backend.ok()) << backend.status();
    const auto logits = logits_on(backend->get());
    ASSERT_TRUE(logits.ok()) << devices << ": " << logits.status();
    EXPECT_EQ(*logits, expected) << devices;
  }
}

TEST_F(ChosenDevices, CountAsMuchOfAllMemoryAsTheFullestTakesOfItsOwn) {
  const MadeUpModel model({.layers = 2});
  const auto taken = [&](const std::string& devices) -> uint64_t {
    const auto backend = Make(devices, 2);
    const auto forward = ForwardModel::Load(backend->get(), model.spec(), model, {});
    return (*forward)->MemoryBytes();
  };
  const uint64_t even = taken("0=1,1=1");
  EXPECT_GT(even, 2 * kGatherBytes);
  EXPECT_GT(taken("0=7,1=1"), even);
}

TEST_F(ChosenDevices, AreMeasuredWhereSharesAreNotStated) {
  device_bytes_ = 4 * kMiB;  // Of which a quarter is read.
  const auto backend = Make("0,1", 2);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const DeviceFacts facts = (*backend)->facts();
  ASSERT_EQ(facts.devices.size(), 2u);
  // One of them is the fastest, which has eight parts; the other has one to eight.
  const double first = facts.devices[0].of_stage.share.size() / double{kShareParts};
  EXPECT_GE(first, 1.0 / 9 - 1e-4);
  EXPECT_LE(first, 8.0 / 9 + 1e-4);
  const auto speed = (*backend)->MeasureSpeed(0.01, kMiB);
  ASSERT_TRUE(speed.ok()) << speed.status();
  ASSERT_EQ(speed->device_read_bytes_per_s.size(), 2u);
  // As fast as the one that is done last.
  for (size_t i = 0; i < 2; ++i) {
    const double share = facts.devices[i].of_stage.share.size() / double{kShareParts};
    EXPECT_LE(speed->read_bytes_per_s, speed->device_read_bytes_per_s[i] / share * (1 + 1e-9));
  }
}

TEST(SharesOfSpeeds, AreEqualForDevicesOfOneKindAndElseAsTheyRead) {
  EXPECT_THAT(cuda::SharesOfSpeeds(std::vector<double>{3.31e12, 3.35e12, 3.28e12}),
              ElementsAre(8, 8, 8));
  EXPECT_THAT(cuda::SharesOfSpeeds(std::vector<double>{2e12, 1e12}), ElementsAre(8, 4));
  EXPECT_THAT(cuda::SharesOfSpeeds(std::vector<double>{1e9, 1e12}), ElementsAre(1, 8));
}

TEST_F(ChosenDevices, ThatAreNotThereAreNamed) {
  const absl::Status status = Make("0,3", 2).status();
  EXPECT_EQ(ReasonOf(status), "DEVICE_UNKNOWN");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Describe(status), HasSubstr("GPU 3"));
  EXPECT_THAT(Describe(status), HasSubstr("devices=2"));
  EXPECT_THAT(Describe(status), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(opened_.empty());
  EXPECT_EQ(ReasonOf(Make("1", 1).status()), "DEVICE_UNKNOWN");
}

TEST_F(ChosenDevices, AreNoMoreThanAStageHasRanks) {
  const absl::Status status = Make("all", 9).status();
  EXPECT_EQ(ReasonOf(status), "RANKS_INVALID");
  EXPECT_THAT(Describe(status), HasSubstr("--devices"));
  EXPECT_TRUE(opened_.empty());
}

TEST_F(ChosenDevices, AreNotOpenedWithoutWhatJoinsThem) {
  cuda::DeviceDriver driver = DriverOf(2);
  driver.join = []() -> absl::StatusOr<cuda::JoinDevices> {
    ASSIGN_OR_RETURN(const cuda::NcclCalls calls, cuda::OpenNccl("libnccl-of-nobody.so.2"));
    return cuda::JoinByNccl(calls);
  };
  const absl::Status status =
      cuda::MakeBackendOnChosen(driver, {.choice = *ParseDevices("all")}, {}).status();
  EXPECT_EQ(ReasonOf(status), cuda::kNcclAbsent);
  EXPECT_THAT(Describe(status), HasSubstr("libnccl-of-nobody.so.2"));
  EXPECT_TRUE(opened_.empty());
}

TEST_F(ChosenDevices, ThatDoNotReachEachOtherAreSaidToBeSlower) {
  cuda::DeviceDriver driver = DriverOf(3);
  driver.reach = [](uint32_t one, uint32_t other) { return one != 0 || other != 2; };
  std::vector<std::string> lines;
  const auto backend = cuda::MakeBackendOnChosen(
      driver, {.choice = *ParseDevices("0=1,1=1,2=1")},
      {.warning_log = [&](const std::string& line) { lines.push_back(line); }});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(lines, ElementsAre(HasSubstr("GPU 0 and GPU 2 do not reach")));
}

}  // namespace
}  // namespace strata::testing
