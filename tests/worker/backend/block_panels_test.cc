// Matrices in blocks, packed: the weights that they stand for.
#include <gtest/gtest.h>

#include <bit>

#include "common/model/block_formats.h"
#include "tests/worker/backend/random_blocks.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/weights/packed_matrix.h"

namespace strata::cpu {
namespace {

constexpr Dtype kBlocks[] = {
    Dtype::kQ4_0,   Dtype::kQ4_1,  Dtype::kQ5_0, Dtype::kQ5_1, Dtype::kQ8_0,     Dtype::kQ4_K,
    Dtype::kQ5_K,   Dtype::kQ6_K,  Dtype::kQ2_K, Dtype::kQ3_K, Dtype::kMXFP4,    Dtype::kIQ4_NL,
    Dtype::kIQ4_XS, Dtype::kNVFP4, Dtype::kNF4,  Dtype::kFP4,  Dtype::kNVFP4BF16};
constexpr size_t kInputs = 512;

std::string RandomBlocks(Dtype dtype, size_t rows) { return RandomRows(dtype, rows, kInputs, 7); }

TensorView View(Dtype dtype, size_t rows, const std::string& bytes) {
  return {
      dtype, {rows, kInputs}, reinterpret_cast<const uint8_t*>(bytes.data()) + 1, bytes.size() - 1};
}

std::vector<float> Decoded(const TensorView& tensor, size_t row) {
  std::vector<float> out(kInputs);
  for (size_t part = 0; part < kInputs / kBlockPart; ++part) {
    DecodePart(tensor.dtype, tensor.data + row * StoredRowBytes(tensor.dtype, kInputs), part,
               out.data() + part * kBlockPart);
  }
  return out;
}

// Packs as a load does.
PackedMatrix Packed(const TensorView& tensor, RowOrder order = {}) {
  ThreadPool pool(2, 2);
  PackedMatrix matrix;
  const absl::Status status = IsBlocks(tensor.dtype)
                                  ? matrix.PackBlocks(tensor, &pool, nullptr, order)
                                  : matrix.Pack(tensor, &pool, nullptr, order);
  EXPECT_TRUE(status.ok()) << status;
  return matrix;
}

TEST(BlockPanels, HoldExactlyTheWeightsOfTheBlocks) {
  for (const Dtype dtype : kBlocks) {
    for (const size_t rows : {1u, 16u, 37u}) {
      SCOPED_TRACE(std::string(DtypeName(dtype)) + " rows " + std::to_string(rows));
      const std::string bytes = RandomBlocks(dtype, rows);
      const TensorView tensor = View(dtype, rows, bytes);
      const PackedMatrix matrix = Packed(tensor);
      EXPECT_EQ(PackedMatrix::PackedBytes(matrix.view()), BlockMatrixBytes(dtype, rows, kInputs));
      std::vector<float> got(kInputs);
      for (size_t row = 0; row < rows; ++row) {
        matrix.ReadOutput(row, got.data());
        ASSERT_EQ(got, Decoded(tensor, row)) << row;
      }
    }
  }
}

TEST(BlockPanels, RowsStoredInPairsComeIntoOrder) {
  constexpr size_t kHead = 8, kRows = 24;
  std::vector<Dtype> dtypes(std::begin(kBlocks), std::end(kBlocks));
  dtypes.insert(dtypes.end(), {Dtype::kF32, Dtype::kF16, Dtype::kBF16});
  for (const Dtype dtype : dtypes) {
    SCOPED_TRACE(DtypeName(dtype));
    std::string bytes = "x";
    if (IsBlocks(dtype)) {
      bytes = RandomBlocks(dtype, kRows);
    } else {
      for (size_t i = 0; i < kRows * kInputs; ++i) {
        const auto value = static_cast<float>(i % 1000);
        const uint32_t word = dtype == Dtype::kF16    ? ToF16(value).bits
                              : dtype == Dtype::kBF16 ? std::bit_cast<uint32_t>(value) >> 16
                                                      : std::bit_cast<uint32_t>(value);
        bytes.append(reinterpret_cast<const char*>(&word), DtypeBytes(dtype));
      }
    }
    const TensorView tensor = View(dtype, kRows, bytes);
    const PackedMatrix stored = Packed(tensor);
    const PackedMatrix ordered = Packed(tensor, {kHead});
    std::vector<float> want(kInputs), got(kInputs);
    for (size_t head = 0; head < kRows; head += kHead) {
      for (size_t i = 0; i < kHead / 2; ++i) {
        for (size_t j = 0; j < 2; ++j) {
          stored.ReadOutput(head + 2 * i + j, want.data());
          ordered.ReadOutput(head + i + j * kHead / 2, got.data());
          ASSERT_EQ(got, want) << head << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(BlockPanels, AScaleThatPanelsCannotHoldIsAnError) {
  std::string bytes = RandomBlocks(Dtype::kQ4_0, 1);
  bytes[1] = static_cast<char>(0xff);
  bytes[2] = 0x7b;  // 65504: the bias would be 8 times that.
  ThreadPool pool(1, 1);
  PackedMatrix matrix;
  EXPECT_EQ(matrix.PackBlocks(View(Dtype::kQ4_0, 1, bytes), &pool).code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace strata::cpu
