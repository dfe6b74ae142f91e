#include "common/model/stage_devices.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace strata {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::vector<StageDevice> Devices(const std::vector<uint64_t>& memory) {
  const std::vector<double> weights(memory.size(), 1);
  const std::vector<OutputRange> shares = *SharesByWeight(weights);
  std::vector<StageDevice> devices;
  for (size_t i = 0; i < memory.size(); ++i) {
    devices.push_back({.share = shares[i], .memory_bytes = memory[i]});
  }
  return devices;
}

TEST(StageDevices, OneThatIsFullFillsAllMemory) {
  const std::vector<StageDevice> devices = Devices({8 * kGiB, 24 * kGiB});
  EXPECT_EQ(AllMemory(devices), 32 * kGiB);
  EXPECT_EQ(OfAllMemory(devices, std::array<uint64_t, 2>{8 * kGiB, 0}), 32 * kGiB);
  EXPECT_EQ(OfAllMemory(devices, std::array<uint64_t, 2>{2 * kGiB, 12 * kGiB}), 16 * kGiB);
  EXPECT_EQ(FullestDevice(devices, std::array<uint64_t, 2>{2 * kGiB, 12 * kGiB}), 1u);
  EXPECT_EQ(FullestDevice(devices, std::array<uint64_t, 2>{2 * kGiB, 6 * kGiB}), 0u);
  EXPECT_EQ(OfOneDevice(devices, 1, 8 * kGiB), 6 * kGiB);
}

TEST(StageDevices, WhatIsNoMoreThanAllMemoryFitsEachDevice) {
  std::mt19937_64 random(20);
  uint64_t most_left = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<uint64_t> memory(2 + random() % 7);
    for (uint64_t& one : memory) one = 1 + random() % (uint64_t{1} << 40);
    const std::vector<StageDevice> devices = Devices(memory);
    const uint64_t all = AllMemory(devices);
    std::vector<uint64_t> used(memory.size());
    for (uint64_t counted = 0;;) {
      std::vector<uint64_t> stage(memory.size());
      for (size_t i = 0; i < stage.size(); ++i) stage[i] = random() % (1 + memory[i] / 3);
      const uint64_t takes = OfAllMemory(devices, stage);
      if (takes > all - counted) {
        break;
      }
      counted += takes;
      for (size_t i = 0; i < stage.size(); ++i) {
        used[i] += stage[i];
        ASSERT_LE(used[i], memory[i]);
        ASSERT_LE(OfOneDevice(devices, i, all - counted), memory[i] - used[i]);
      }
    }
    // A stage that fills the fullest alone does fit.
    std::vector<uint64_t> full(memory.size());
    const size_t at = random() % memory.size();
    full[at] = memory[at];
    EXPECT_EQ(OfAllMemory(devices, full), all);
    full[at] = memory[at] + 1;
    EXPECT_GT(OfAllMemory(devices, full), all);
    most_left = std::max(most_left, all);
  }
  EXPECT_GT(most_left, uint64_t{1} << 40);
}

TEST(StageDevices, PartsCountNoLessThanTheirWhole) {
  const std::vector<StageDevice> devices = Devices({5, 7, 11});
  for (uint64_t a = 0; a < 12; ++a) {
    const std::array<uint64_t, 3> one = {a, 11 - a, 3};
    const std::array<uint64_t, 3> other = {11 - a, 2, a};
    const std::array<uint64_t, 3> whole = {11, 13 - a, 3 + a};
    EXPECT_GE(OfAllMemory(devices, one) + OfAllMemory(devices, other), OfAllMemory(devices, whole));
  }
}

}  // namespace
}  // namespace strata
