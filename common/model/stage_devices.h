// The memory of several devices over which a node divides each of its stages, counted as one
// number: ledgers have one number a node. Pure; any thread.
#ifndef STRATA_COMMON_MODEL_STAGE_DEVICES_H_
#define STRATA_COMMON_MODEL_STAGE_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/rank_outputs.h"

namespace strata {

// One of them, by rank.
struct StageDevice {
  OutputRange share;          // SharesByWeight's.
  uint64_t memory_bytes = 0;  // That stages may take of it; > 0.

  bool operator==(const StageDevice&) const = default;
};

std::vector<OutputRange> SharesOf(std::span<const StageDevice> devices);

// Of all devices.
uint64_t AllMemory(std::span<const StageDevice> devices);

// What is taken of all their memory where device i has bytes[i]: as large a part as is taken of the
// device that is filled furthest. Where what several stages take is no more than AllMemory, each
// device has room for all of them.
uint64_t OfAllMemory(std::span<const StageDevice> devices, std::span<const uint64_t> bytes);

// The device that is filled furthest by bytes[i] each; of equals the first.
size_t FullestDevice(std::span<const StageDevice> devices, std::span<const uint64_t> bytes);

// What a device surely has of `of_all` bytes of all their memory.
uint64_t OfOneDevice(std::span<const StageDevice> devices, size_t device, uint64_t of_all);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_STAGE_DEVICES_H_
