// The batch that a shard computes: on the device, what its kernels ask of rows.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_BATCH_ON_DEVICE_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_BATCH_ON_DEVICE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/shard/transfers.h"
#include "worker/backend/stage.h"

namespace strata::cuda {

class BatchOnDevice {
 public:
  // Room for what `spec` allows, with page tables of these KV groups: nothing is allocated after
  // it.
  absl::Status Allocate(Device* device, const StageSpec& spec,
                        std::span<const uint32_t> used_groups);
  // `batch` was checked (ShardCalls).
  absl::Status Begin(Transfers* transfers, const Batch& batch);
  void Clear();
  // Only these rows, which were checked, are left, counted from 0 from then on. Their numbers are
  // `taken()` on the device.
  absl::Status Keep(Transfers* transfers, std::span<const uint32_t> rows);
  // Copies row numbers to `taken()`.
  absl::Status Take(Transfers* transfers, std::span<const uint32_t> rows);
  // Copies the batch's tokens to `ids()`.
  absl::Status TakeIds(Transfers* transfers);

  uint32_t rows() const { return rows_; }
  std::span<const uint32_t> token_ids() const { return token_ids_; }
  // None once rows were left out.
  std::span<const BatchItem> items() const { return items_; }
  // All of one row each.
  bool single_rows() const { return single_rows_; }
  // At least as many keys as any row sees, its own among them, without a window: rounded up, of few
  // rows to one of few numbers.
  uint32_t most_keys() const { return most_keys_; }

  const uint32_t* ids() const { return ids_.as<uint32_t>(); }
  const RowPlace* places() const { return places_.as<RowPlace>(); }
  const RowPages* tables(uint32_t group) const {
    return tables_.as<RowPages>() + size_t{group} * most_rows_;
  }
  const uint32_t* pages() const { return pages_.as<uint32_t>(); }
  const uint32_t* taken() const { return taken_.as<uint32_t>(); }
  uint64_t bytes() const;

 private:
  absl::Status UploadRows(Transfers* transfers);

  uint32_t most_rows_ = 0;
  uint32_t context_ = 0;
  uint32_t groups_ = 0;
  std::vector<uint32_t> used_groups_;  // By the stage's layers.
  float query_growth_ = 0;             // Of the layers that have any.
  uint32_t query_growth_every_ = 0;
  uint32_t rows_ = 0;
  std::span<const uint32_t> token_ids_;
  std::span<const BatchItem> items_;
  bool single_rows_ = true;
  uint32_t most_keys_ = 0;
  std::vector<RowPlace> host_places_;
  std::vector<RowPages> host_tables_;  // [groups][most_rows]
  std::vector<uint32_t> host_pages_;
  DeviceBuffer ids_, places_, tables_, pages_, taken_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_BATCH_ON_DEVICE_H_
