// The quantized formats of PackedMatrix.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/model/block_formats.h"
#include "common/model/quantized_weights.h"
#include "common/status.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/weights/packed_codes.h"
#include "worker/backend/cpu/weights/packed_matrix.h"
#include "worker/backend/cpu/weights/quantize.h"
#include "worker/backend/cpu/weights/split_rows.h"

namespace strata::cpu {
namespace {

constexpr uint32_t kMostGroup = 128;

WeightFormat BlockFormatOf(Dtype dtype) {
  using Kind = BlockPanels::Kind;
  switch (PanelsOf(dtype).kind) {
    case Kind::kCodes:
      return CodeFormatOf(dtype);
    case Kind::kSuper2:
      return WeightFormat::kSuper2;
    case Kind::kAffine8:
      return WeightFormat::kAffine8;
    case Kind::kAffine4:
      return WeightFormat::kAffine4;
    case Kind::kSuper4:
      return WeightFormat::kSuper4;
    case Kind::kSuper5:
      return WeightFormat::kSuper5;
    case Kind::kSuper6:
      return WeightFormat::kSuper6;
    default:
      return WeightFormat::kInt8;
  }
}

bool IsSuper(const PanelView& view) { return IsSuper(view.format); }
bool IsAffine(const PanelView& view) { return view.format != WeightFormat::kInt8; }
size_t BitsOf(const PanelView& view) {
  switch (view.format) {
    case WeightFormat::kSuper2:
      return 2;
    case WeightFormat::kAffine4:
    case WeightFormat::kSuper4:
      return 4;
    case WeightFormat::kSuper5:
      return 5;
    case WeightFormat::kSuper6:
      return 6;
    default:
      return 8;
  }
}
size_t HeadBytes(const PanelView& view) {
  return IsSuper(view) ? kSuperHeadBytes
                       : (IsAffine(view) ? 2 : 1) * kLanes * DtypeBytes(view.scale_dtype);
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

// Where super-blocks keep bits of word w of a block, of which each is four inputs of an output: the
// line, and from which bit of its bytes on. The low four bits, and the ones above.
struct BitPlace {
  size_t line;
  size_t at;
};
BitPlace LowBits(size_t word) { return {word / 2, word % 2 * 4}; }
BitPlace HighBits(size_t bits, size_t word) {
  return {4 + word * (bits - 4) / 8, word * (bits - 4) % 8};
}

void PutSuperBlock(const PanelView& view, const IntegerSuperBlock& from, size_t lane, uint8_t* to) {
  const size_t bits = BitsOf(view);
  uint8_t* const factors = to + 64 + lane;
  if (bits == 6) {
    std::memcpy(to + lane * sizeof(float), &from.scale, sizeof(float));
    for (size_t j = 0; j < std::size(from.c); ++j) {
      factors[j * kLanes] = static_cast<uint8_t>(from.c[j]);
    }
  } else {
    const F16 halves[] = {ToF16(from.scale), ToF16(from.minimum)};  // As they were stored.
    std::memcpy(to + lane * sizeof(F16), &halves[0], sizeof(F16));
    std::memcpy(to + (kLanes + lane) * sizeof(F16), &halves[1], sizeof(F16));
    for (size_t j = 0; bits == 2 && j < std::size(from.c); ++j) {
      factors[j * kLanes] = static_cast<uint8_t>(from.c[j] | from.m[j] << 4);
    }
    for (size_t j = 0; bits != 2 && j < kSuperBlocks; ++j) {
      factors[j * kLanes] = static_cast<uint8_t>(from.c[j]);
      factors[(kSuperBlocks + j) * kLanes] = static_cast<uint8_t>(from.m[j]);
    }
  }
  uint8_t* lines = to + kSuperHeadBytes + lane * 4;
  for (size_t k = 0; k < kSuperBlock; k += kQuantBlock) {
    uint32_t words[6] = {};
    for (size_t w = 0; w < kQuantBlock / 4; ++w) {
      uint32_t u;
      std::memcpy(&u, from.u + k + 4 * w, sizeof(u));
      if (bits == 2) {
        words[w / 4] |= u << w % 4 * 2;
        continue;
      }
      const BitPlace low = LowBits(w);
      words[low.line] |= (u & 0x0f0f0f0fu) << low.at;
      if (bits > 4) {
        const BitPlace high = HighBits(bits, w);
        words[high.line] |= (u >> 4 & 0x03030303u) << high.at;
      }
    }
    for (size_t line = 0; line < bits; ++line) {
      std::memcpy(lines + line * 64, &words[line], sizeof(uint32_t));
    }
    lines += bits * 64;
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
  const uint8_t* const from =
      tensor.data + (row * tensor.shape[1] + first) * DtypeBytes(tensor.dtype);
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
  STRATA_CHECK(tensor.shape.size() == 2 && CanPack(tensor.dtype));
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
  const BlockPanels panels = PanelsOf(dtype);
  PanelView view{.format = BlockFormatOf(dtype),
                 .scale_dtype = panels.scales,
                 .group = static_cast<uint32_t>(panels.super() ? kSuperBlock : kBlockPart),
                 .outputs = outputs,
                 .inputs = inputs};
  if (IsCodes(view.format)) {
    view.group = kCodeGroup;
    view.panel_bytes = BlockMatrixBytes(dtype, kLanes, inputs);
  } else {
    view.panel_bytes = PanelBytesOf(view);
  }
  STRATA_CHECK(PackedBytes(view) == BlockMatrixBytes(dtype, outputs, inputs));
  return view;
}

absl::Status PackedMatrix::PackBlocks(const TensorView& tensor, ThreadPool* pool,
                                      const UsedFn& used, RowOrder order) {
  RETURN_IF_ERROR(AllocatePanels(BlockShape(tensor.dtype, tensor.shape[0], tensor.shape[1])));
  const size_t row_bytes = StoredRowBytes(tensor.dtype, view_.inputs);
  if (IsCodes(view_.format)) {
    SplitRows(view_.outputs, row_bytes, kLanes, pool, used, [&](size_t begin, size_t end) {
      for (size_t row = begin; row < end; ++row) {
        PackCodes(view_, tensor.dtype, tensor.data + order.Stored(row) * row_bytes, row, panels_);
      }
    });
    return absl::OkStatus();
  }
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
    const uint8_t* const from = tensor.data + order.Stored(row) * row_bytes;
    if (IsSuper(view_)) {
      PutSuperBlock(view_, DecodeSuperBlock(tensor.dtype, from, first / kSuperBlock), lane, to);
      return;
    }
    const IntegerPart part = DecodeIntegers(tensor.dtype, from, first / kBlockPart);
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

void PackedMatrix::ReadSuperBlocks(size_t output, float* out) const {
  const size_t lane = output % kLanes;
  const size_t bits = BitsOf(view_);
  const uint8_t* at = view_.data + output / kLanes * view_.panel_bytes;
  for (size_t k = 0; k < view_.inputs; ++k) {
    const size_t in_super = k % kSuperBlock;
    const size_t word = in_super % kQuantBlock / 4;
    const uint8_t* const bytes =
        at + kSuperHeadBytes + in_super / kQuantBlock * bits * 64 + lane * 4 + k % 4;
    const auto part = [&](BitPlace place, size_t count) {
      return bytes[place.line * 64] >> place.at & ((1 << count) - 1);
    };
    const int u = bits == 2 ? part({word / 4, word % 4 * 2}, 2)
                            : part(LowBits(word), 4) |
                                  (bits > 4 ? part(HighBits(bits, word), bits - 4) << 4 : 0);
    const auto factor = [&](size_t j) {
      return static_cast<float>(static_cast<int8_t>(at[64 + j * kLanes + lane]));
    };
    const float d = ReadScale(view_.scale_dtype, at + lane * DtypeBytes(view_.scale_dtype));
    const size_t j = in_super / kQuantBlock;
    if (bits == 6) {
      out[k] = d * factor(in_super / 16) * static_cast<float>(u - 32);
    } else if (bits == 2) {
      const float e = ReadScale(view_.scale_dtype, at + (kLanes + lane) * sizeof(F16));
      const uint8_t both = at[64 + in_super / 16 * kLanes + lane];
      out[k] = std::fma(d * static_cast<float>(both & 15), static_cast<float>(u),
                        -(e * static_cast<float>(both >> 4)));
    } else {
      const float e = ReadScale(view_.scale_dtype, at + (kLanes + lane) * sizeof(F16));
      out[k] = std::fma(d * factor(j), static_cast<float>(u), -(e * factor(kSuperBlocks + j)));
    }
    if (in_super + 1 == kSuperBlock) {
      at += GroupBytes(view_, kSuperBlock);
    }
  }
}

void PackedMatrix::ReadQuantized(size_t output, float* out) const {
  if (IsCodes(view_.format)) {
    ReadCodes(view_, output, out);
    return;
  }
  if (IsSuper(view_)) {
    ReadSuperBlocks(output, out);
    return;
  }
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
