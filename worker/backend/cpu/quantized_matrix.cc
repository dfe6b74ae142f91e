// The quantized formats of PackedMatrix.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/block_formats.h"
#include "common/check.h"
#include "common/quantized_weights.h"
#include "common/status.h"
#include "worker/backend/cpu/convert.h"
#include "worker/backend/cpu/packed_matrix.h"
#include "worker/backend/cpu/quantize.h"
#include "worker/backend/cpu/split_rows.h"

namespace strata::cpu {
namespace {

constexpr uint32_t kMostGroup = 128;

bool IsAffine(const PanelView& view) { return view.format != WeightFormat::kInt8; }
size_t BitsOf(const PanelView& view) { return view.format == WeightFormat::kAffine4 ? 4 : 8; }
size_t HeadBytes(const PanelView& view) {
  return (IsAffine(view) ? 2 : 1) * kLanes * DtypeBytes(view.scale_dtype);
}
// Of a group of `count` inputs, their scales included.
size_t GroupBytes(const PanelView& view, size_t count) {
  return HeadBytes(view) + RoundUp(count, kQuantBlock) * kLanes * BitsOf(view) / 8;
}
size_t PanelBytesOf(const PanelView& view) {
  const size_t whole = view.inputs / view.group;
  const size_t rest = view.inputs % view.group;
  return whole * GroupBytes(view, view.group) + (rest == 0 ? 0 : GroupBytes(view, rest));
}

// Where input `k` of a group is kept for output `lane`, behind the group's scales.
size_t ByteOf(size_t bits, size_t lane, size_t k) {
  return bits == 8 ? k / 4 * 64 + lane * 4 + k % 4 : k / 8 * 64 + lane * 4 + k % 4;
}

// `u` has room for whole blocks.
void PutGroup(const PanelView& view, const uint8_t* u, size_t lane, size_t count, uint8_t* lines) {
  const size_t bits = BitsOf(view);
  for (size_t k = 0; k < count; k += 32 / bits) {
    uint32_t word;
    std::memcpy(&word, u + k, sizeof(word));
    if (bits == 4) {
      uint32_t high;
      std::memcpy(&high, u + k + 4, sizeof(high));
      word |= high << 4;
    }
    std::memcpy(lines + ByteOf(bits, lane, k), &word, sizeof(word));
  }
}

float ReadScale(Dtype dtype, const uint8_t* from) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return dtype == Dtype::kF16 ? ToF32(F16{bits}) : ToF32(BF16{bits});
}

// Weights [first, first + count) of a row; `first` is a multiple of 32.
void ReadFloats(const Kernels& kernels, const TensorView& tensor, size_t row, size_t first,
                size_t count, float* out) {
  const uint8_t* from = tensor.data + row * StoredRowBytes(tensor.dtype, tensor.shape[1]);
  if (IsBlocks(tensor.dtype)) {
    for (size_t k = 0; k < count; k += kBlockPart) {
      DecodePart(tensor.dtype, from, (first + k) / kBlockPart, out + k);
    }
    return;
  }
  from += first * DtypeBytes(tensor.dtype);
  if (tensor.dtype == Dtype::kF32) {
    std::memcpy(out, from, count * sizeof(float));
    return;
  }
  uint16_t halves[kMostGroup];  // The tensor may lie at an odd address.
  std::memcpy(halves, from, count * sizeof(uint16_t));
  (tensor.dtype == Dtype::kF16 ? kernels.from_f16 : kernels.from_bf16)(halves, count, out);
}

// function(row, first input, inputs, the group's bytes) of the panels of these rows.
template <typename Function>
void ForGroups(const PanelView& view, size_t begin, size_t end, uint8_t* panels,
               const Function& function) {
  for (size_t panel = begin; panel < end; panel += kLanes) {
    uint8_t* to = panels + panel / kLanes * view.panel_bytes;
    for (size_t first = 0; first < view.inputs; first += view.group) {
      const size_t count = std::min<size_t>(view.group, view.inputs - first);
      for (size_t row = panel; row < std::min(end, panel + kLanes); ++row) {
        function(row, first, count, to);
      }
      to += GroupBytes(view, count);
    }
  }
}

}  // namespace

PanelView PackedMatrix::QuantizedShape(WeightFormat format, size_t outputs, size_t inputs) {
  STRATA_CHECK(format == WeightFormat::kInt8 || format == WeightFormat::kAffine4);
  PanelView view{.format = format, .outputs = outputs, .inputs = inputs};
  view.scale_dtype = format == WeightFormat::kInt8 ? Dtype::kF32 : Dtype::kF16;
  view.group = format == WeightFormat::kInt8 ? kInt8Group : kInt4Group;
  view.panel_bytes = PanelBytesOf(view);
  STRATA_CHECK(PackedBytes(view) == QuantizedMatrixBytes(outputs, inputs, BitsOf(view)));
  return view;
}

PanelView PackedMatrix::AffineShape(const AffineTensor& tensor) {
  STRATA_CHECK(IsAffineBits(tensor.bits) && IsAffineGroup(tensor.group));
  PanelView view{.format = tensor.bits == 4 ? WeightFormat::kAffine4 : WeightFormat::kAffine8,
                 .scale_dtype = tensor.scales.dtype,
                 .group = tensor.group,
                 .outputs = tensor.weight.shape[0],
                 .inputs = tensor.scales.shape[1] * tensor.group};
  view.panel_bytes = PanelBytesOf(view);
  return view;
}

absl::Status PackedMatrix::Quantize(const TensorView& tensor, WeightFormat format,
                                    const Kernels& kernels, ThreadPool* pool, const UsedFn& used,
                                    RowOrder order) {
  STRATA_CHECK(tensor.shape.size() == 2 && (CanPack(tensor.dtype) || IsBlocks(tensor.dtype)));
  RETURN_IF_ERROR(AllocatePanels(QuantizedShape(format, tensor.shape[0], tensor.shape[1])));
  const auto quantize = [&](size_t row, size_t first, size_t count, uint8_t* to) {
    const size_t lane = row % kLanes;
    float weights[kMostGroup];
    uint8_t u[kMostGroup] = {};
    ReadFloats(kernels, tensor, order.Stored(row), first, count, weights);
    if (format == WeightFormat::kInt8) {
      QuantizeInt8(weights, count, reinterpret_cast<float*>(to) + lane, u);
    } else {
      F16* const scales = reinterpret_cast<F16*>(to);
      QuantizeInt4(weights, count, scales + lane, scales + kLanes + lane, u);
    }
    PutGroup(view_, u, lane, count, to + HeadBytes(view_));
  };
  SplitRows(view_.outputs, StoredRowBytes(tensor.dtype, view_.inputs), kLanes, pool, used,
            [&](size_t begin, size_t end) { ForGroups(view_, begin, end, panels_, quantize); });
  return absl::OkStatus();
}

absl::Status PackedMatrix::PackAffine(const AffineTensor& tensor, ThreadPool* pool,
                                      const UsedFn& used) {
  RETURN_IF_ERROR(AllocatePanels(AffineShape(tensor)));
  const size_t scale_bytes = DtypeBytes(view_.scale_dtype);
  const size_t groups = view_.inputs / view_.group;
  const size_t row_bytes = view_.inputs * tensor.bits / 8;
  const auto pack = [&](size_t row, size_t first, size_t count, uint8_t* to) {
    const size_t lane = row % kLanes;
    const size_t scale = (row * groups + first / view_.group) * scale_bytes;
    std::memcpy(to + lane * scale_bytes, tensor.scales.data + scale, scale_bytes);
    std::memcpy(to + (kLanes + lane) * scale_bytes, tensor.biases.data + scale, scale_bytes);
    const uint8_t* const from = tensor.weight.data + row * row_bytes + first * tensor.bits / 8;
    uint8_t u[kMostGroup] = {};
    for (size_t k = 0; k < count; ++k) {
      u[k] = tensor.bits == 8 ? from[k] : static_cast<uint8_t>(from[k / 2] >> k % 2 * 4 & 15);
    }
    PutGroup(view_, u, lane, count, to + HeadBytes(view_));
  };
  SplitRows(view_.outputs, row_bytes, kLanes, pool, used,
            [&](size_t begin, size_t end) { ForGroups(view_, begin, end, panels_, pack); });
  return absl::OkStatus();
}

PanelView PackedMatrix::BlockShape(Dtype dtype, size_t outputs, size_t inputs) {
  STRATA_CHECK(IsIntegerBlocks(dtype));
  const BlockPanels panels = PanelsOf(dtype);
  using Kind = BlockPanels::Kind;
  PanelView view{.format = panels.kind == Kind::kInt8      ? WeightFormat::kInt8
                           : panels.kind == Kind::kAffine8 ? WeightFormat::kAffine8
                                                           : WeightFormat::kAffine4,
                 .scale_dtype = panels.scales,
                 .group = kBlockPart,
                 .outputs = outputs,
                 .inputs = inputs};
  view.panel_bytes = PanelBytesOf(view);
  STRATA_CHECK(PackedBytes(view) == BlockMatrixBytes(dtype, outputs, inputs));
  return view;
}

absl::Status PackedMatrix::PackBlocks(const TensorView& tensor, ThreadPool* pool,
                                      const UsedFn& used, RowOrder order) {
  RETURN_IF_ERROR(AllocatePanels(BlockShape(tensor.dtype, tensor.shape[0], tensor.shape[1])));
  const size_t row_bytes = StoredRowBytes(tensor.dtype, view_.inputs);
  std::atomic<bool> exact = true;
  const auto put = [&](float value, uint8_t* to) {
    if (view_.scale_dtype == Dtype::kF32) {
      std::memcpy(to, &value, sizeof(value));
      return;
    }
    const F16 half = ToF16(value);  // Exact, but for what is beyond its range.
    if (ToF32(half) != value && !std::isnan(value)) {
      exact = false;
    }
    std::memcpy(to, &half, sizeof(half));
  };
  const size_t scale_bytes = DtypeBytes(view_.scale_dtype);
  const auto pack = [&](size_t row, size_t first, size_t, uint8_t* to) {
    const size_t lane = row % kLanes;
    const IntegerPart part = DecodeIntegers(
        tensor.dtype, tensor.data + order.Stored(row) * row_bytes, first / kBlockPart);
    put(part.scale, to + lane * scale_bytes);
    if (IsAffine(view_)) {
      put(part.bias, to + (kLanes + lane) * scale_bytes);
    }
    PutGroup(view_, part.u, lane, kBlockPart, to + HeadBytes(view_));
  };
  SplitRows(view_.outputs, row_bytes, kLanes, pool, used,
            [&](size_t begin, size_t end) { ForGroups(view_, begin, end, panels_, pack); });
  if (!exact) {
    return Error(absl::StatusCode::kOutOfRange, "TENSOR_RANGE",
                 absl::StrCat("a block's scale is beyond what ", DtypeName(tensor.dtype),
                              " is computed with"));
  }
  return absl::OkStatus();
}

void PackedMatrix::ReadQuantized(size_t output, float* out) const {
  const size_t lane = output % kLanes;
  const size_t bits = BitsOf(view_);
  const size_t scale_bytes = DtypeBytes(view_.scale_dtype);
  const uint8_t* at = view_.data + output / kLanes * view_.panel_bytes;
  for (size_t first = 0; first < view_.inputs; first += view_.group) {
    const size_t count = std::min<size_t>(view_.group, view_.inputs - first);
    const float s = ReadScale(view_.scale_dtype, at + lane * scale_bytes);
    const float b =
        IsAffine(view_) ? ReadScale(view_.scale_dtype, at + (kLanes + lane) * scale_bytes) : 0.0f;
    const uint8_t* const lines = at + HeadBytes(view_);
    for (size_t k = 0; k < count; ++k) {
      const uint8_t byte = lines[ByteOf(bits, lane, k)];
      const int u = bits == 8 ? byte : byte >> (k % 8 / 4 * 4) & 15;
      out[first + k] = std::fma(s, static_cast<float>(IsAffine(view_) ? u : u - 128), b);
    }
    at += GroupBytes(view_, count);
  }
}

}  // namespace strata::cpu
