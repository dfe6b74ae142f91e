// Packing a large tensor without having all of it in memory.
#ifndef STRATA_WORKER_BACKEND_CPU_WEIGHTS_SPLIT_ROWS_H_
#define STRATA_WORKER_BACKEND_CPU_WEIGHTS_SPLIT_ROWS_H_

#include <algorithm>
#include <cstddef>

#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/packed_matrix.h"

namespace strata::cpu {

// Bytes of a tensor between two reports of what is used up.
inline constexpr size_t kSliceBytes = size_t{32} << 20;

// function(first, end) over all rows, on the pool's threads, a slice of the tensor after another;
// `first` is a multiple of `unit`, and so is `end` unless it is the last row's. After each slice
// `used`, if there is one, hears how many bytes the rows so far take.
template <typename Function>
void SplitRows(size_t rows, size_t row_bytes, size_t unit, ThreadPool* pool, const UsedFn& used,
               const Function& function) {
  const size_t slice =
      RoundUp(std::max(kSliceBytes / std::max<size_t>(1, row_bytes), unit * pool->threads()), unit);
  for (size_t begin = 0; begin < rows; begin += slice) {
    const size_t end = std::min(rows, begin + slice);
    pool->Split((end - begin + unit - 1) / unit, [&](size_t from, size_t to) {
      function(begin + from * unit, std::min(end, begin + to * unit));
    });
    if (used) {
      used(end * row_bytes);
    }
  }
}

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_WEIGHTS_SPLIT_ROWS_H_
