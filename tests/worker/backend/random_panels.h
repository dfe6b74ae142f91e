// What the cases of kernels compute with: numbers, activations and panels of weights, which are
// random and on every machine the same.
#ifndef STRATA_TESTS_WORKER_BACKEND_RANDOM_PANELS_H_
#define STRATA_TESTS_WORKER_BACKEND_RANDOM_PANELS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu::cases {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t Bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  // Of [first, last].
  uint32_t In(uint32_t first, uint32_t last) { return first + Bits() % (last - first + 1); }
  // Of [-size, size).
  float Float(float size = 1) {
    return size * static_cast<float>(static_cast<int32_t>(Bits()) >> 7) * 0x1p-24f;
  }
  std::vector<float> Floats(size_t count, float size = 1) {
    std::vector<float> out(count);
    for (float& x : out) {
      x = Float(size);
    }
    return out;
  }

 private:
  uint64_t state_;
};

// Row-major rows of activations, with what is rare at some places.
enum class Inputs { kUsual, kRare, kLargest, kNoNumber };
inline std::vector<float> MakeInputs(Inputs kind, size_t count, Random* random) {
  std::vector<float> x = random->Floats(count, 3);
  if (kind == Inputs::kLargest) {
    // All of a sign, so that no sum is saved by another.
    std::fill(x.begin(), x.end(), random->Bits() % 2 == 0 ? 2.0f : -2.0f);
  } else if (kind == Inputs::kRare) {
    constexpr float kRare[] = {0.0f, -0.0f, 0x1p-140f, -0x1p-101f, 0x1.8p-100f, 1e18f, 0.5f};
    for (size_t i = 0; i < count; i += random->In(1, 64)) {
      x[i] = kRare[random->In(0, 6)];
    }
    for (size_t i = count / 2; i < std::min(count, count / 2 + 40); ++i) {
      x[i] *= 0x1p-101f;  // A whole block of nothing, or nearly.
    }
  } else if (kind == Inputs::kNoNumber) {
    x[random->In(0, static_cast<uint32_t>(count) - 1)] = random->Bits() % 2 == 0 ? kNan : kInfinity;
  }
  return x;
}

inline const char* NameOf(Dtype dtype) {
  return dtype == Dtype::kF16 ? "f16" : dtype == Dtype::kBF16 ? "bf16" : "f32";
}
inline size_t BytesOf(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }

// Writes `x` as `dtype` has it.
inline void Put(Dtype dtype, float x, uint8_t* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t half = dtype == Dtype::kF16 ? ToF16(x).bits : static_cast<uint16_t>(bits >> 16);
  if (dtype == Dtype::kF32) {
    std::memcpy(to, &bits, sizeof(bits));
  } else {
    std::memcpy(to, &half, sizeof(half));
  }
}

struct Format {
  WeightFormat format;
  Dtype dtype = Dtype::kF32;  // Of floats, or of scales.
  uint32_t group = 0;         // Of quantized weights.
  std::string name() const {
    return WeightFormatName(format) +
           (group == 0 ? "" : std::string("/") + NameOf(dtype) + "/g" + std::to_string(group));
  }
};

// All that kernels multiply, with the groups that differ in how they are computed.
inline std::vector<Format> Formats() {
  std::vector<Format> out = {{WeightFormat::kF32, Dtype::kF32},
                             {WeightFormat::kF16, Dtype::kF16},
                             {WeightFormat::kBF16, Dtype::kBF16},
                             {WeightFormat::kInt8, Dtype::kF32, 32},
                             {WeightFormat::kInt8, Dtype::kF32, 128}};
  for (const WeightFormat format : {WeightFormat::kAffine8, WeightFormat::kAffine4}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
      for (const uint32_t group : {32u, 64u, 128u}) {
        out.push_back({format, dtype, group});
      }
    }
  }
  for (const WeightFormat format :
       {WeightFormat::kMxfp4, WeightFormat::kNvfp4, WeightFormat::kNvfp4Bf16, WeightFormat::kIq4Nl,
        WeightFormat::kIq4Xs, WeightFormat::kNf4, WeightFormat::kFp4}) {
    out.push_back({format, Dtype::kF32, kCodeGroup});
  }
  out.insert(out.end(), {{WeightFormat::kSuper2, Dtype::kF16, 256},
                         {WeightFormat::kSuper4, Dtype::kF16, 256},
                         {WeightFormat::kSuper5, Dtype::kF16, 256},
                         {WeightFormat::kSuper6, Dtype::kF32, 256}});
  return out;
}

// Panels of random weights, those that do not count included. `byte`: all weights of 8 or 4 bits
// are that one.
struct Panels {
  Panels(const Format& format, size_t outputs, size_t inputs, int byte, Random* random) {
    view = {.format = format.format,
            .scale_dtype = format.dtype,
            .group = format.group,
            .outputs = outputs,
            .inputs = inputs};
    if (format.group == 0) {
      view.panel_bytes = (inputs * kLanes * BytesOf(format.dtype) + 63) / 64 * 64;
    } else {
      view.panel_bytes = RowBytes();
      for (size_t first = 0; first < inputs; first += format.group) {
        view.panel_bytes += HeadBytes() + LineBytes(first);
      }
    }
    bytes.resize(view.panels() * view.panel_bytes);
    for (uint8_t* to = bytes.data(); to != bytes.data() + bytes.size(); to += view.panel_bytes) {
      if (format.group == 0) {
        for (size_t i = 0; i < inputs * kLanes; ++i) {
          Put(format.dtype, random->Float(), to + i * BytesOf(format.dtype));
        }
      } else {
        FillGroups(byte, random, to);
      }
    }
    view.data = bytes.data();
  }

  // Before the first group.
  size_t RowBytes() const {
    return IsCodes(view.format) ? CodeRowBytes(BookOf(view.format).scales) : 0;
  }
  size_t HeadBytes() const {
    if (IsSuper(view.format)) {
      return kSuperHeadBytes;
    }
    if (IsCodes(view.format)) {
      return CodeHeadBytes(BookOf(view.format).scales);
    }
    return (view.format == WeightFormat::kInt8 ? 1 : 2) * kLanes * BytesOf(view.scale_dtype);
  }
  size_t LineBytes(size_t first) const {
    const size_t count = std::min<size_t>(view.group, view.inputs - first);
    const size_t bits =
        view.format == WeightFormat::kSuper2                                          ? 2
        : view.format == WeightFormat::kSuper5                                        ? 5
        : view.format == WeightFormat::kSuper6                                        ? 6
        : view.format == WeightFormat::kAffine8 || view.format == WeightFormat::kInt8 ? 8
                                                                                      : 4;
    return (count + kQuantBlock - 1) / kQuantBlock * kQuantBlock * kLanes * bits / 8;
  }
  // Floats of 16 and 32 bits, or bytes, that are scales of codes.
  void FillCodeScales(int byte, Random* random, uint8_t* to) const {
    const CodeScales scales = BookOf(view.format).scales;
    size_t floats = 0;  // Bytes of them.
    Dtype dtype = Dtype::kF32;
    if (scales == CodeScales::kHalf || scales == CodeScales::kFloat) {
      floats = HeadBytes();
      dtype = scales == CodeScales::kHalf ? Dtype::kF16 : Dtype::kF32;
    } else if (scales == CodeScales::kSuper) {
      floats = 64;
    }
    for (size_t i = 0; i < floats; i += BytesOf(dtype)) {
      Put(dtype, random->Float(0.25f), to + i);
    }
    for (size_t i = floats; i < HeadBytes(); ++i) {
      const auto bits = static_cast<uint8_t>(random->Bits() >> 24);
      // Exponents about 2^-3, or any at all; 8-bit floats of both signs; factors of six bits.
      to[i] = scales == CodeScales::kExponent
                  ? static_cast<uint8_t>(bits % 16 == 0 ? bits : 120 + bits % 8)
              : scales == CodeScales::kSuper ? static_cast<uint8_t>(bits % 64 - 32)
                                             : bits;
      if (byte >= 0) {
        to[i] = scales == CodeScales::kExponent       ? 130
                : scales == CodeScales::kFloat8Halves ? 0xfe
                                                      : static_cast<uint8_t>(-32);
      }
    }
  }
  void FillGroups(int byte, Random* random, uint8_t* to) const {
    const bool rounded = IsCodes(view.format) && BookOf(view.format).scales == CodeScales::kFloat;
    const auto rounding = static_cast<CodeRounding>(rounded ? random->In(0, 2) : 0);
    for (size_t i = 0; i < RowBytes(); i += sizeof(float)) {
      if (rounded) {
        std::memcpy(to + i, &rounding, sizeof(rounding));
      } else {
        Put(Dtype::kF32, random->Float(0.25f), to + i);
      }
    }
    to += RowBytes();
    for (size_t first = 0; first < view.inputs; first += view.group) {
      const size_t scale_bytes = BytesOf(view.scale_dtype);
      // Of super-blocks the scales are followed by bytes that multiply them.
      const size_t scales = IsSuper(view.format) ? 64 : HeadBytes();
      if (IsCodes(view.format)) {
        FillCodeScales(byte, random, to);
      } else {
        for (size_t i = 0; i < scales / scale_bytes; ++i) {
          Put(view.scale_dtype, random->Float(0.25f), to + i * scale_bytes);
        }
        for (size_t i = scales; i < HeadBytes(); ++i) {
          to[i] = static_cast<uint8_t>(byte >= 0 ? 0x80 : random->Bits() >> 24);
        }
      }
      to += HeadBytes();
      for (size_t i = 0; i < LineBytes(first); ++i) {
        *to++ = static_cast<uint8_t>(byte >= 0 ? byte : random->Bits() >> 24);
      }
    }
  }

  PanelView view;
  std::vector<uint8_t> bytes;
};

}  // namespace strata::cpu::cases

#endif  // STRATA_TESTS_WORKER_BACKEND_RANDOM_PANELS_H_
