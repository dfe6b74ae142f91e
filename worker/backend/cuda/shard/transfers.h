// Copies between the host and a device, through memory of the host that is pinned: the device
// copies one piece while the host fills, or empties, the next.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_TRANSFERS_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_TRANSFERS_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "common/footprint/device_limits.h"
#include "worker/backend/cuda/device/device.h"

namespace strata::cuda {

// One thread at a time. The device outlives it.
class Transfers {
 public:
  Transfers() = default;
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // A stage may be loaded while another one computes, and has its launches recorded: until
  // EndLoading, which waits, copies to the device go on the stream of copies.
  absl::Status Allocate(Device* device);
  absl::Status EndLoading();

  // To the device, behind what is on the stream of kernels. `from` may be used again when it
  // returns, which is before the copy is done.
  absl::Status In(void* to, const void* from, uint64_t bytes);

  // Marks what is on the stream of kernels by now.
  absl::Status Mark(OwnedEvent* computed);
  // From the device, behind what is on the stream of kernels; or behind `computed` alone, and
  // beside what was put there since. Waits until all is copied, also of no bytes.
  absl::Status Out(void* to, const void* from, uint64_t bytes,
                   const OwnedEvent* computed = nullptr);

 private:
  struct Piece {
    uint8_t* data = nullptr;
    OwnedEvent copied;
    uint64_t used = 0;  // Bytes, of those to the device.
    bool busy = false;  // Of those from it: what it holds was not taken.
  };
  absl::Status StartOut(Stream stream, const uint8_t* from, uint64_t bytes, Piece* piece);

  Device* device_ = nullptr;
  bool loading_ = false;
  PinnedMemory memory_;
  std::array<Piece, kPinnedPieces> in_;
  std::array<Piece, kPinnedPieces> out_;
  size_t filling_ = 0;  // Of in_.
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_TRANSFERS_H_
