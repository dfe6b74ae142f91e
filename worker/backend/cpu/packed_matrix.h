// Weights as the kernels read them.
#ifndef STRATA_WORKER_BACKEND_CPU_PACKED_MATRIX_H_
#define STRATA_WORKER_BACKEND_CPU_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/aligned_buffer.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/thread_pool.h"

namespace strata::cpu {

// A matrix [outputs, inputs] in panels of 16 outputs with the inputs inside: panel p holds, for
// each input k in order, the weights of outputs 16 p to 16 p + 15, in the stored dtype. Panels
// begin on cache lines; outputs behind the last are zeros. One row or many rows read it in the same
// order, so that a result does not depend on how many there are. Const after Pack; any thread.
class PackedMatrix {
 public:
  // F32, F16 and BF16.
  static bool CanPack(Dtype dtype);
  static size_t PackedBytes(Dtype dtype, size_t outputs, size_t inputs);

  // From a row-major tensor [outputs, inputs], checked before.
  absl::Status Pack(const TensorView& tensor, ThreadPool* pool);

  const PanelView& view() const { return view_; }
  size_t bytes() const { return data_.bytes(); }
  // Weights of one output, as float32 [inputs]: the embedding of a token where head and embedding
  // are one matrix.
  void ReadOutput(size_t output, float* out) const;

 private:
  PanelView view_;
  AlignedBuffer data_;
};

// An embedding matrix [rows, width], kept in rows of the stored dtype.
class RowMatrix {
 public:
  static size_t Bytes(Dtype dtype, size_t rows, size_t width);
  absl::Status Copy(const TensorView& tensor, ThreadPool* pool);
  bool empty() const { return data_.bytes() == 0; }
  size_t bytes() const { return data_.bytes(); }
  void ReadRow(const Kernels& kernels, size_t row, float* out) const;

 private:
  Dtype dtype_ = Dtype::kF32;
  size_t width_ = 0;
  AlignedBuffer data_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_PACKED_MATRIX_H_
