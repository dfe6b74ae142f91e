#include "worker/backend/cuda/measure.h"

#include <algorithm>
#include <chrono>

#include "common/status.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {
namespace {

// Enough to fill a GPU of 148 multiprocessors with 8 blocks each.
constexpr uint32_t kBlocks = 148 * 8;
// A run is so long at least that starting it does not count.
constexpr double kLeastRunSeconds = 0.002;
constexpr uint32_t kFirstRounds = 16;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds of what `launch` puts on the stream.
template <typename Launch>
absl::StatusOr<double> SecondsOf(Device* device, const OwnedEvent& end, const Launch& launch) {
  const auto start = std::chrono::steady_clock::now();
  launch();
  RETURN_IF_ERROR(device->LaunchStatus());
  RETURN_IF_ERROR(device->Record(end.get(), device->stream()));
  RETURN_IF_ERROR(device->Finish(end.get()));
  return std::max(SecondsSince(start), 1e-9);
}

}  // namespace

absl::StatusOr<DeviceSpeed> MeasureDevice(Device* device, double seconds, uint64_t bytes) {
  ASSIGN_OR_RETURN(const DeviceMemory memory, device->Memory());
  bytes = std::min(bytes, memory.free_bytes / 4);
  DeviceBuffer words;
  DeviceBuffer out;
  RETURN_IF_ERROR(words.Allocate(device, bytes, "measuring"));
  RETURN_IF_ERROR(out.Allocate(device, sizeof(uint32_t), "measuring"));
  ASSIGN_OR_RETURN(const Event event, device->MakeEvent());
  const OwnedEvent end(device, event);
  DeviceSpeed speed;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2 || SecondsSince(start) < seconds / 2; ++i) {
    ASSIGN_OR_RETURN(const double took, SecondsOf(device, end, [&] {
                       ReadWords(device->stream(), kBlocks, words.as<uint64_t>(),
                                 bytes / sizeof(uint64_t), out.as<uint32_t>());
                     }));
    speed.read_bytes_per_s = std::max(speed.read_bytes_per_s, static_cast<double>(bytes) / took);
  }
  start = std::chrono::steady_clock::now();
  uint32_t rounds = kFirstRounds;
  for (int i = 0; i < 2 || SecondsSince(start) < seconds / 2; ++i) {
    uint64_t fmas = 0;
    ASSIGN_OR_RETURN(const double took, SecondsOf(device, end, [&] {
                       fmas = RunFmas(device->stream(), kBlocks, rounds, out.as<float>());
                     }));
    speed.flops_per_s = std::max(speed.flops_per_s, 2.0 * static_cast<double>(fmas) / took);
    rounds *= took < kLeastRunSeconds ? 2 : 1;
  }
  return speed;
}

}  // namespace strata::cuda
