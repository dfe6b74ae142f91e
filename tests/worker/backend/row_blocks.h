// Rows of activations as a matrix product takes them.
#ifndef STRATA_TESTS_WORKER_BACKEND_ROW_BLOCKS_H_
#define STRATA_TESTS_WORKER_BACKEND_ROW_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// MatmulArgs::packed of x [rows][inputs]; int8 also in two parts, the second one first.
inline std::vector<uint8_t> PackRowBlocks(const Kernels& kernels, const std::vector<float>& x,
                                          uint32_t rows, size_t inputs, bool int8,
                                          bool in_parts = false) {
  const size_t row_bytes = int8 ? kernels.quantized_row_bytes(inputs) : inputs * sizeof(float);
  std::vector<uint8_t> packed(rows * row_bytes);
  const uint32_t blocks = RowBlocks(rows, kernels.block_rows);
  for (uint32_t b = 0; b < blocks; ++b) {
    const RowBlock block = RowBlockAt(rows, blocks, b);
    const float* const from = x.data() + block.first * inputs;
    uint8_t* const to = packed.data() + block.first * row_bytes;
    if (in_parts) {
      const size_t end = (inputs + kQuantBlock - 1) / kQuantBlock;
      kernels.quantize_part(from, inputs, block.count, inputs, end / 2, end, to);
      kernels.quantize_part(from, inputs, block.count, inputs, 0, end / 2, to);
    } else {
      (int8 ? kernels.quantize_rows : kernels.pack_rows)(from, inputs, block.count, inputs, to);
    }
  }
  return packed;
}

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_ROW_BLOCKS_H_
