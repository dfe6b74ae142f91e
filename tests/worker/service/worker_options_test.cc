#include "worker/service/worker_options.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace strata
