// Weights as the kernels read them.
#ifndef STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_MATRIX_H_
#define STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/cpu/threads/page_buffer.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/tensor_source.h"

namespace strata::cpu {

// Weights as MLX quantizes them: `weight` [outputs, inputs * bits / 32] of 32-bit words, the first
// input in the lowest bits; `scales` and `biases` [outputs, inputs / group].
struct AffineTensor {
  TensorView weight;
  TensorView scales;
  TensorView biases;
  uint32_t bits = 4;
  uint32_t group = 64;
};

// How the rows of a matrix lie in its tensor: in order, or for heads of `head_rows` rows as
// AttentionSpec::qk_rows_in_pairs says.
struct RowOrder {
  size_t head_rows = 0;  // 0: in order. Else even, and the matrix is whole heads.
  size_t Stored(size_t row) const {
    if (head_rows == 0) {
      return row;
    }
    const size_t half = head_rows / 2;
    const size_t within = row % head_rows;
    return row - within + within % half * 2 + within / half;
  }
};

// Bytes of a tensor's row.
size_t StoredRowBytes(Dtype dtype, size_t inputs);

// Told now and then, by the thread that packs, how many bytes of a tensor are used up.
using UsedFn = std::function<void(size_t bytes)>;
// Writes all of `out`.
using ReadFn = std::function<absl::Status(std::span<uint8_t> out)>;

// A matrix [outputs, inputs] in panels of 16 outputs with the inputs inside (see PanelView): panel
// p holds, for each input k in order, the weights of outputs 16 p to 16 p + 15. Panels begin on
// cache lines; outputs behind the last are zeros. One row or many rows read it in the same order,
// so that a result does not depend on how many there are. Const after it was packed; any thread.
class PackedMatrix {
 public:
  // F32, F16 and BF16.
  static bool CanPack(Dtype dtype);

  // What a matrix of this format takes; the view's data is not looked at.
  static size_t PackedBytes(const PanelView& shape);
  // As Pack makes it of this dtype.
  static PanelView FloatShape(Dtype dtype, size_t outputs, size_t inputs);
  // As Quantize makes it: kInt8 or kAffine4, with groups and scales of our own choice.
  static PanelView QuantizedShape(WeightFormat format, size_t outputs, size_t inputs);
  // As PackAffine makes it; the tensors were checked to agree, bits to be 4 or 8, the group to be
  // 32, 64 or 128. Their data is not looked at.
  static PanelView AffineShape(const AffineTensor& tensor);
  // As PackBlocks makes it; `dtype` IsBlocks, and inputs are whole blocks.
  static PanelView BlockShape(Dtype dtype, size_t outputs, size_t inputs);

  // The panels will be there, in memory of PackedBytes that outlives them and begins on a cache
  // line, instead of in memory of their own; however often they are made.
  void UseMemory(std::span<uint8_t> panels) { given_ = panels; }

  // From a row-major tensor [outputs, inputs] of floats, checked before.
  absl::Status Pack(const TensorView& tensor, ThreadPool* pool, const UsedFn& used = nullptr,
                    RowOrder order = {});
  // The same, quantized on the way (see quantize.h).
  absl::Status Quantize(const TensorView& tensor, WeightFormat format, const Kernels& kernels,
                        ThreadPool* pool, const UsedFn& used = nullptr, RowOrder order = {});
  // Exactly the stored weights, scales and biases; `used` counts the weights.
  absl::Status PackAffine(const AffineTensor& tensor, ThreadPool* pool,
                          const UsedFn& used = nullptr);
  // Exactly the weights of blocks. OUT_OF_RANGE where a scale is beyond what panels hold,
  // which no trained model has.
  absl::Status PackBlocks(const TensorView& tensor, ThreadPool* pool, const UsedFn& used = nullptr,
                          RowOrder order = {});
  // As one of these made it before: `read` writes all of `packed()`. Empty after an error; memory
  // that it was given is still its own then, and it may be packed there.
  absl::Status Restore(const PanelView& shape, const ReadFn& read);
  // All panels, of PackedBytes.
  std::span<const uint8_t> packed() const { return {view_.data, PackedBytes(view_)}; }

  const PanelView& view() const { return view_; }
  // Of its panels, whoever's memory they are in.
  size_t bytes() const { return PackedBytes(view_); }
  // Weights of one output, as float32 [inputs]: the embedding of a token where head and embedding
  // are one matrix, or where it is quantized.
  void ReadOutput(size_t output, float* out) const;

 private:
  absl::Status AllocatePanels(const PanelView& shape, Fill fill = Fill::kZeros);
  void ReadQuantized(size_t output, float* out) const;
  void ReadSuperBlocks(size_t output, float* out) const;

  PanelView view_;
  AlignedBuffer data_;
  std::span<uint8_t> given_;   // Others' memory; empty: data_ is used.
  uint8_t* panels_ = nullptr;  // In one of them.
};

// An embedding matrix [rows, width] of floats, kept in rows of the stored dtype.
class RowMatrix {
 public:
  static size_t Bytes(Dtype dtype, size_t rows, size_t width);
  absl::Status Copy(const TensorView& tensor, ThreadPool* pool, const UsedFn& used = nullptr);
  // As Copy made it before. Empty after an error.
  absl::Status Restore(Dtype dtype, size_t rows, size_t width, const ReadFn& read);
  // All rows.
  std::span<const uint8_t> packed() const { return {data_.as(), rows_ * Bytes(dtype_, 1, width_)}; }
  bool empty() const { return data_.bytes() == 0; }
  Dtype dtype() const { return dtype_; }
  size_t bytes() const { return data_.bytes(); }
  void ReadRow(const Kernels& kernels, size_t row, float* out) const;

 private:
  absl::Status Allocate(Dtype dtype, size_t rows, size_t width);

  Dtype dtype_ = Dtype::kF32;
  size_t rows_ = 0;
  size_t width_ = 0;
  PageBuffer data_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_MATRIX_H_
