#include "worker/backend/cpu/weights/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "common/model/block_formats.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/weights/split_rows.h"

namespace strata::cpu {
namespace {

WeightFormat FloatFormatOf(Dtype dtype) {
  return dtype == Dtype::kF16    ? WeightFormat::kF16
         : dtype == Dtype::kBF16 ? WeightFormat::kBF16
                                 : WeightFormat::kF32;
}

size_t PanelBytes(Dtype dtype, size_t inputs) {
  return RoundUp(inputs * kLanes * DtypeBytes(dtype), kCacheLineBytes);
}

// Elements of one 16-byte vector, which every machine that Strata runs on has.
template <typename Element>
struct VectorOf;
template <>
struct VectorOf<uint16_t> {
  using Type = uint16_t __attribute__((vector_size(16)));
  static Type Low(Type a, Type b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  static Type High(Type a, Type b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct VectorOf<uint32_t> {
  using Type = uint32_t __attribute__((vector_size(16)));
  static Type Low(Type a, Type b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
  static Type High(Type a, Type b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
};

// Writes a square of a vector's width transposed: rows `row_bytes` apart to columns of a panel.
template <typename Element>
inline void TransposeSquare(const uint8_t* from, size_t row_bytes, Element* to) {
  using Ops = VectorOf<Element>;
  using Vector = typename Ops::Type;
  constexpr size_t kWidth = sizeof(Vector) / sizeof(Element);
  Vector rows[kWidth];
  for (size_t i = 0; i < kWidth; ++i) {
    std::memcpy(&rows[i], from + i * row_bytes, sizeof(Vector));
  }
  // Interleaving the halves rotates the bits of (row, column) by one; a transposition is as many
  // of that as a column number has bits.
  for (size_t round = 1; round < kWidth; round *= 2) {
    Vector next[kWidth];
    for (size_t i = 0; i < kWidth / 2; ++i) {
      next[2 * i] = Ops::Low(rows[i], rows[i + kWidth / 2]);
      next[2 * i + 1] = Ops::High(rows[i], rows[i + kWidth / 2]);
    }
    std::memcpy(rows, next, sizeof(rows));
  }
  for (size_t i = 0; i < kWidth; ++i) {
    std::memcpy(to + i * kLanes, &rows[i], sizeof(Vector));
  }
}

// One panel of `lanes` rows; `data` may be unaligned.
template <typename Element>
void PackPanel(const uint8_t* data, size_t lanes, size_t inputs, uint8_t* panel) {
  constexpr size_t kWidth = 16 / sizeof(Element);
  Element* const to = reinterpret_cast<Element*>(panel);
  const size_t row_bytes = inputs * sizeof(Element);
  size_t done = 0;
  if (lanes == kLanes) {
    for (; done + kWidth <= inputs; done += kWidth) {
      for (size_t lane = 0; lane < kLanes; lane += kWidth) {
        TransposeSquare(data + lane * row_bytes + done * sizeof(Element), row_bytes,
                        to + done * kLanes + lane);
      }
    }
  }
  for (size_t lane = 0; lane < lanes; ++lane) {
    for (size_t k = done; k < inputs; ++k) {
      std::memcpy(to + k * kLanes + lane, data + lane * row_bytes + k * sizeof(Element),
                  sizeof(Element));
    }
  }
}

}  // namespace

size_t StoredRowBytes(Dtype dtype, size_t inputs) {
  return IsBlocks(dtype) ? BlockRowBytes(dtype, inputs) : inputs * DtypeBytes(dtype);
}

bool PackedMatrix::CanPack(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBF16;
}

PanelView PackedMatrix::FloatShape(Dtype dtype, size_t outputs, size_t inputs) {
  return {.format = FloatFormatOf(dtype),
          .panel_bytes = PanelBytes(dtype, inputs),
          .outputs = outputs,
          .inputs = inputs};
}

size_t PackedMatrix::PackedBytes(const PanelView& shape) {
  return shape.panels() * shape.panel_bytes;
}

absl::Status PackedMatrix::AllocatePanels(const PanelView& shape, Fill fill) {
  const size_t bytes = PackedBytes(shape);
  if (given_.data() == nullptr) {
    RETURN_IF_ERROR(data_.Allocate(bytes, "weights", Fill::kNone));
    panels_ = data_.as();
  } else {
    STRATA_CHECK(bytes == given_.size());  // Others' panels lie behind it.
    panels_ = given_.data();
  }
  if (fill == Fill::kZeros) {
    std::memset(panels_, 0, bytes);
  }
  view_ = shape;
  view_.data = panels_;
  return absl::OkStatus();
}

absl::Status PackedMatrix::Restore(const PanelView& shape, const ReadFn& read) {
  RETURN_IF_ERROR(AllocatePanels(shape, Fill::kNone));
  absl::Status status = read({panels_, PackedBytes(shape)});
  if (!status.ok()) {
    view_ = PanelView();
    data_ = AlignedBuffer();
    panels_ = nullptr;
  }
  return status;
}

absl::Status PackedMatrix::Pack(const TensorView& tensor, ThreadPool* pool, const UsedFn& used,
                                RowOrder order) {
  STRATA_CHECK(tensor.shape.size() == 2 && CanPack(tensor.dtype));
  const size_t outputs = tensor.shape[0];
  const size_t inputs = tensor.shape[1];
  RETURN_IF_ERROR(AllocatePanels(FloatShape(tensor.dtype, outputs, inputs)));
  const size_t row_bytes = StoredRowBytes(tensor.dtype, inputs);
  const bool as_stored = order.head_rows == 0;
  const auto pack = [&](size_t first, size_t end) {
    std::vector<uint8_t> rows(as_stored ? 0 : kLanes * row_bytes);
    for (size_t row = first; row < end; row += kLanes) {
      const size_t lanes = std::min(kLanes, end - row);
      const uint8_t* from = tensor.data + row * row_bytes;
      if (!as_stored) {
        for (size_t lane = 0; lane < lanes; ++lane) {
          std::memcpy(rows.data() + lane * row_bytes,
                      tensor.data + order.Stored(row + lane) * row_bytes, row_bytes);
        }
        from = rows.data();
      }
      uint8_t* const to = panels_ + row / kLanes * view_.panel_bytes;
      if (DtypeBytes(tensor.dtype) == 4) {
        PackPanel<uint32_t>(from, lanes, inputs, to);
      } else {
        PackPanel<uint16_t>(from, lanes, inputs, to);
      }
    }
  };
  SplitRows(outputs, row_bytes, kLanes, pool, used, pack);
  return absl::OkStatus();
}

void PackedMatrix::ReadOutput(size_t output, float* out) const {
  if (view_.group != 0) {
    ReadQuantized(output, out);
    return;
  }
  const uint8_t* const panel = view_.data + output / kLanes * view_.panel_bytes;
  const size_t lane = output % kLanes;
  for (size_t k = 0; k < view_.inputs; ++k) {
    const size_t at = k * kLanes + lane;
    switch (view_.format) {
      case WeightFormat::kF16:
        out[k] = ToF32(reinterpret_cast<const F16*>(panel)[at]);
        break;
      case WeightFormat::kBF16:
        out[k] = ToF32(reinterpret_cast<const BF16*>(panel)[at]);
        break;
      default:
        out[k] = reinterpret_cast<const float*>(panel)[at];
    }
  }
}

size_t RowMatrix::Bytes(Dtype dtype, size_t rows, size_t width) {
  return rows * width * DtypeBytes(dtype);
}

absl::Status RowMatrix::Allocate(Dtype dtype, size_t rows, size_t width) {
  dtype_ = dtype;
  rows_ = rows;
  width_ = width;
  return data_.Allocate(Bytes(dtype, rows, width), "the embedding");
}

absl::Status RowMatrix::Copy(const TensorView& tensor, ThreadPool* pool, const UsedFn& used) {
  STRATA_CHECK(tensor.shape.size() == 2);
  const size_t row_bytes = Bytes(tensor.dtype, 1, tensor.shape[1]);
  RETURN_IF_ERROR(Allocate(tensor.dtype, tensor.shape[0], tensor.shape[1]));
  SplitRows(rows_, row_bytes, 1, pool, used, [&](size_t first, size_t end) {
    std::memcpy(data_.as() + first * row_bytes, tensor.data + first * row_bytes,
                (end - first) * row_bytes);
  });
  return absl::OkStatus();
}

absl::Status RowMatrix::Restore(Dtype dtype, size_t rows, size_t width, const ReadFn& read) {
  RETURN_IF_ERROR(Allocate(dtype, rows, width));
  absl::Status status = read({data_.as(), Bytes(dtype, rows, width)});
  if (!status.ok()) {
    *this = RowMatrix();
  }
  return status;
}

void RowMatrix::ReadRow(const Kernels& kernels, size_t row, float* out) const {
  const uint8_t* const from = data_.as() + row * Bytes(dtype_, 1, width_);
  switch (dtype_) {
    case Dtype::kF16:
      kernels.from_f16(reinterpret_cast<const uint16_t*>(from), width_, out);
      return;
    case Dtype::kBF16:
      kernels.from_bf16(reinterpret_cast<const uint16_t*>(from), width_, out);
      return;
    default:
      std::memcpy(out, from, width_ * sizeof(float));
  }
}

}  // namespace strata::cpu
