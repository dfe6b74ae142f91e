// Copies between the host and an emulated device, whenever its streams do what is put on them.
#include "worker/backend/cuda/shard/transfers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "common/status.h"
#include "worker/backend/cuda/device/emulated_device.h"

namespace strata::cuda {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{64} << 20;

std::vector<uint32_t> Numbers(size_t count, uint32_t first) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}
uint64_t BytesOf(const std::vector<uint32_t>& numbers) { return numbers.size() * sizeof(uint32_t); }

TEST(CudaTransfers, OfAnySizeComeToTheDeviceAndBack) {
  for (uint64_t order = 0; order < 8; ++order) {
    const auto device = MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = order});
    DeviceBuffer buffer;
    ASSERT_TRUE(buffer.Allocate(device.get(), 12 << 20, "a test").ok());
    Transfers transfers;
    ASSERT_TRUE(transfers.Allocate(device.get()).ok());
    ASSERT_TRUE(transfers.EndLoading().ok());
    for (const size_t count : {size_t{1}, size_t{100}, size_t{1} << 18, (size_t{1} << 18) + 1,
                               size_t{2500000}, size_t{7}}) {
      std::vector<uint32_t> numbers = Numbers(count, static_cast<uint32_t>(order + count));
      const std::vector<uint32_t> expected = numbers;
      ASSERT_TRUE(transfers.In(buffer.as(), numbers.data(), BytesOf(numbers)).ok());
      numbers.assign(count, 0);  // May be used again.
      ASSERT_TRUE(transfers.Out(numbers.data(), buffer.as(), BytesOf(numbers)).ok());
      EXPECT_EQ(numbers, expected) << count << " numbers, order " << order;
    }
  }
}

TEST(CudaTransfers, ManySmallOnesWaitForNothingThatIsNotTheirs) {
  for (uint64_t order = 0; order < 4; ++order) {
    const auto device = MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = order});
    DeviceBuffer buffer;
    constexpr size_t kEach = 50000;
    constexpr size_t kCount = 40;  // More than all pieces hold.
    ASSERT_TRUE(buffer.Allocate(device.get(), kEach * kCount * 4, "a test").ok());
    Transfers transfers;
    ASSERT_TRUE(transfers.Allocate(device.get()).ok());
    ASSERT_TRUE(transfers.EndLoading().ok());
    for (size_t i = 0; i < kCount; ++i) {
      const std::vector<uint32_t> numbers = Numbers(kEach, static_cast<uint32_t>(i * kEach));
      ASSERT_TRUE(
          transfers.In(buffer.as<uint32_t>() + i * kEach, numbers.data(), BytesOf(numbers)).ok());
    }
    std::vector<uint32_t> all(kEach * kCount);
    ASSERT_TRUE(transfers.Out(all.data(), buffer.as(), BytesOf(all)).ok());
    EXPECT_EQ(all, Numbers(kEach * kCount, 0)) << order;
  }
}

TEST(CudaTransfers, BehindAMarkComeWithWhatWasThereThen) {
  for (uint64_t order = 0; order < 16; ++order) {
    const auto device = MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = order});
    DeviceBuffer first;
    DeviceBuffer second;
    ASSERT_TRUE(first.Allocate(device.get(), 4000, "a test").ok());
    ASSERT_TRUE(second.Allocate(device.get(), 4000, "a test").ok());
    Transfers transfers;
    ASSERT_TRUE(transfers.Allocate(device.get()).ok());
    ASSERT_TRUE(transfers.EndLoading().ok());
    OwnedEvent marked;
    for (uint32_t i = 0; i < 3; ++i) {
      const std::vector<uint32_t> numbers = Numbers(1000, 1000 * i);
      ASSERT_TRUE(transfers.In(first.as(), numbers.data(), BytesOf(numbers)).ok());
      ASSERT_TRUE(transfers.Mark(&marked).ok());
      ASSERT_TRUE(transfers.In(second.as(), numbers.data(), BytesOf(numbers)).ok());
      std::vector<uint32_t> got(1000);
      ASSERT_TRUE(transfers.Out(got.data(), first.as(), BytesOf(got), &marked).ok());
      EXPECT_EQ(got, numbers) << order;
    }
  }
}

// A call fails alone, whichever it is: the next copies are right.
TEST(CudaTransfers, AfterACallThatFailedAloneAreRight) {
  for (uint64_t failing = 20; failing < 60; ++failing) {
    uint64_t calls = 0;
    const auto device = MakeEmulatedDevice(
        kDeviceBytes, {.fails_once = [&] { return ++calls == failing; }}, {.stream_order = 1});
    DeviceBuffer buffer;
    ASSERT_TRUE(buffer.Allocate(device.get(), 8 << 20, "a test").ok());
    Transfers transfers;
    ASSERT_TRUE(transfers.Allocate(device.get()).ok());
    ASSERT_TRUE(transfers.EndLoading().ok());
    bool failed = false;
    for (uint32_t i = 0; i < 3; ++i) {
      const std::vector<uint32_t> numbers = Numbers(1500000, i);
      std::vector<uint32_t> got(numbers.size());
      absl::Status status = transfers.In(buffer.as(), numbers.data(), BytesOf(numbers));
      if (status.ok()) {
        status = transfers.Out(got.data(), buffer.as(), BytesOf(got));
      }
      if (!status.ok()) {
        EXPECT_EQ(ReasonOf(status), "DEVICE_CALL_FAILED");
        EXPECT_FALSE(failed);
        failed = true;
        continue;
      }
      EXPECT_EQ(got, numbers) << "call " << failing;
    }
    EXPECT_TRUE(failed) << failing;
  }
}

}  // namespace
}  // namespace strata::cuda
