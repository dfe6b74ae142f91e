// Rows of activations as a matrix product takes them.
#ifndef STRATA_TESTS_WORKER_BACKEND_ROW_BLOCKS_H_
#define STRATA_TESTS_WORKER_BACKEND_ROW_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/backend/cpu/kernels.h"

namespace strata::cpu {

// MatmulArgs::packed of x [rows][inputs].
inline std::vector<uint8_t> PackRowBlocks(const Kernels& kernels, const std::vector<float>& x,
                                          uint32_t rows, size_t inputs, bool int8) {
  const size_t row_bytes = int8 ? kernels.quantized_row_bytes(inputs) : inputs * sizeof(float);
  std::vector<uint8_t> packed(rows * row_bytes);
  const uint32_t blocks = RowBlocks(rows, kernels.block_rows);
  for (uint32_t b = 0; b < blocks; ++b) {
    const RowBlock block = RowBlockAt(rows, blocks, b);
    (int8 ? kernels.quantize_rows : kernels.pack_rows)(x.data() + block.first * inputs, inputs,
                                                       block.count, inputs,
                                                       packed.data() + block.first * row_bytes);
  }
  return packed;
}

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_ROW_BLOCKS_H_
