#include "worker/service/worker_options.h"

#include <gtest/gtest.h>

#include <string>

#include "common/status.h"

namespace strata {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

WorkerOptions OptionsOf(uint64_t memory_bytes, bool given) {
  WorkerOptions options;
  options.memory_bytes = memory_bytes;
  options.memory_given = given;
  options.host_memory_bytes = 20 * kGiB;
  return options;
}

TEST(MemoryBudget, IsOfTheHostsMemoryWhereTheDeviceIsTheHost) {
  const MemoryBudget budget = BudgetOf(OptionsOf(8 * kGiB, true), DeviceFacts(), 100, 23);
  EXPECT_EQ(budget.bytes, 8 * kGiB);
  EXPECT_EQ(budget.fixed_bytes, 123);
  EXPECT_EQ(budget.host_bytes, 0);
}

TEST(MemoryBudget, IsNoMoreThanADeviceMayTakeOfTheHostsMemory) {
  DeviceFacts device;
  device.shared_bytes = 12 * kGiB;
  for (const bool given : {false, true}) {
    EXPECT_EQ(BudgetOf(OptionsOf(16 * kGiB, given), device, 100, 23).bytes, 12 * kGiB);
    EXPECT_EQ(BudgetOf(OptionsOf(8 * kGiB, given), device, 100, 23).bytes, 8 * kGiB);
  }
  EXPECT_EQ(BudgetOf(OptionsOf(16 * kGiB, true), device, 100, 23).fixed_bytes, 123);
}

TEST(MemoryBudget, IsOfADevicesOwnMemoryBesideTheHosts) {
  DeviceFacts device;
  device.memory_bytes = 10 * kGiB;
  EXPECT_EQ(BudgetOf(OptionsOf(16 * kGiB, false), device, 100, 23).bytes, 9 * kGiB);
  EXPECT_EQ(BudgetOf(OptionsOf(16 * kGiB, true), device, 100, 23).bytes, 10 * kGiB);
  const MemoryBudget budget = BudgetOf(OptionsOf(4 * kGiB, true), device, 100, 23);
  EXPECT_EQ(budget.bytes, 4 * kGiB);
  EXPECT_EQ(budget.fixed_bytes, 0);
  EXPECT_EQ(budget.host_bytes, 20 * kGiB);
  EXPECT_EQ(budget.host_fixed_bytes, 123);
}

TEST(MemoryBudget, IsAllThatStagesMayTakeOfSeveralDevices) {
  DeviceFacts device;
  device.memory_bytes = 10 * kGiB;
  device.devices = {{.index = 0, .name = "GPU", .of_stage = {{0, 32768}, 6 * kGiB}},
                    {.index = 1, .name = "GPU", .of_stage = {{32768, 65536}, 4 * kGiB}}};
  for (const bool given : {false, true}) {
    const MemoryBudget budget = BudgetOf(OptionsOf(6 * kGiB, given), device, 100, 23);
    EXPECT_EQ(budget.bytes, 10 * kGiB);
    EXPECT_EQ(budget.host_bytes, 20 * kGiB);
  }
}

// Of `strata-worker --coordinator 127.0.0.1:7070 --devices VALUE`.
absl::StatusOr<WorkerOptions> WithDevices(const std::string& devices) {
  WorkerOptions options;
  const std::string argument = "--devices=" + devices;
  const char* const arguments[] = {"strata-worker", "--coordinator=127.0.0.1:7070",
                                   argument.c_str()};
  const auto no_environment = [](const char*) -> const char* { return nullptr; };
  EXPECT_FALSE(ParseWorkerFlags(3, arguments, no_environment, &options).has_value());
  RETURN_IF_ERROR(CompleteWorkerOptions(no_environment, &options));
  return options;
}

TEST(WorkerFlags, DevicesAreReadByRank) {
  const auto options = WithDevices("1=2,0=1");
  ASSERT_TRUE(options.ok()) << options.status();
  ASSERT_EQ(options->devices.named.size(), 2u);
  EXPECT_EQ(options->devices.named[0].index, 1u);
  EXPECT_EQ(options->devices.named[0].share, 2);
  EXPECT_TRUE(WithDevices("all")->devices.all);
  EXPECT_EQ(ReasonOf(WithDevices("0,0").status()), "BAD_DEVICES");
  WorkerOptions none;
  EXPECT_FALSE(none.devices.given());
}

}  // namespace
}  // namespace strata
