#include "common/model/stage_devices.h"

#include <algorithm>
#include <limits>

#include "absl/numeric/int128.h"
#include "common/check.h"

namespace strata {
namespace {

// bytes * of / by, rounded up; the largest number where that is more.
uint64_t Scaled(uint64_t bytes, uint64_t of, uint64_t by) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  if (by == 0) {
    return bytes == 0 ? 0 : kMost;
  }
  const absl::uint128 scaled = (absl::uint128(bytes) * of + (by - 1)) / by;
  return scaled > kMost ? kMost : static_cast<uint64_t>(scaled);
}

}  // namespace

std::vector<OutputRange> SharesOf(std::span<const StageDevice> devices) {
  std::vector<OutputRange> shares;
  for (const StageDevice& device : devices) {
    shares.push_back(device.share);
  }
  return shares;
}

uint64_t AllMemory(std::span<const StageDevice> devices) {
  uint64_t bytes = 0;
  for (const StageDevice& device : devices) {
    bytes += device.memory_bytes;
  }
  return bytes;
}

uint64_t OfAllMemory(std::span<const StageDevice> devices, std::span<const uint64_t> bytes) {
  STRATA_CHECK(devices.size() == bytes.size());
  const uint64_t all = AllMemory(devices);
  uint64_t most = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    most = std::max(most, Scaled(bytes[i], all, devices[i].memory_bytes));
  }
  return most;
}

size_t FullestDevice(std::span<const StageDevice> devices, std::span<const uint64_t> bytes) {
  STRATA_CHECK(devices.size() == bytes.size());
  const uint64_t all = AllMemory(devices);
  size_t fullest = 0;
  for (size_t i = 1; i < devices.size(); ++i) {
    if (Scaled(bytes[i], all, devices[i].memory_bytes) >
        Scaled(bytes[fullest], all, devices[fullest].memory_bytes)) {
      fullest = i;
    }
  }
  return fullest;
}

uint64_t OfOneDevice(std::span<const StageDevice> devices, size_t device, uint64_t of_all) {
  const uint64_t all = AllMemory(devices);
  return all == 0
             ? 0
             : static_cast<uint64_t>(absl::uint128(of_all) * devices[device].memory_bytes / all);
}

}  // namespace strata
