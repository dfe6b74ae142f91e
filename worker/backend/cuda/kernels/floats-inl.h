// Arithmetic of single numbers on the device, to the bit what the CPU's kernels compute: see
// common/numerics/exp_constants.h, common/model/narrow_floats.h and the CPU's convert.h. Included
// by the kernels' sources alone.
#ifndef STRATA_WORKER_BACKEND_CUDA_KERNELS_FLOATS_INL_H_
#define STRATA_WORKER_BACKEND_CUDA_KERNELS_FLOATS_INL_H_

#include <cstdint>

#include "common/numerics/exp_constants.h"
#include "worker/backend/cuda/kernels/cuda_language.h"

namespace strata::cuda {

// NaN stays the second operand's, as in the CPU's Max.
__device__ inline float MaxOf(float a, float b) { return a > b ? a : b; }

// e^x.
__device__ inline float Exp(float x) {
  const float t = __fmaf_rn(x, kExpLog2e, kExpMagic);
  const float n = t - kExpMagic;
  float r = __fmaf_rn(n, -kExpLn2High, x);
  r = __fmaf_rn(n, -kExpLn2Low, r);
  float q = __fmaf_rn(kExpQ5, r, kExpQ4);
  q = __fmaf_rn(q, r, kExpQ3);
  q = __fmaf_rn(q, r, kExpQ2);
  q = __fmaf_rn(q, r, kExpQ1);
  q = __fmaf_rn(q, r, kExpQ0);
  const float y = 1.0f + __fmaf_rn(q, r * r, r);
  const float e = __uint_as_float(__float_as_uint(y) + (__float_as_uint(t) << 23));
  const float bounded = x < kExpMin ? 0.0f : x == x ? e : x;
  return x > kExpMax ? __uint_as_float(0x7f800000u) : bounded;
}

// Between -most and most; a NaN stays one.
__device__ inline float Clamp(float x, float most) { return -MaxOf(-most, -MaxOf(-most, x)); }
__device__ inline float AtMost(float x, float most) { return -MaxOf(-most, -x); }

__device__ inline float Tanh(float x) {
  const float y = Clamp(x, kTanhMost);
  const float a = Clamp(y, kTanhNear);
  const float z = a * a;
  float p = __fmaf_rn(kTanhP4, z, kTanhP3);
  p = __fmaf_rn(p, z, kTanhP2);
  p = __fmaf_rn(p, z, kTanhP1);
  p = __fmaf_rn(p, z, kTanhP0);
  const float t = __fmaf_rn(p * z, a, a);
  const float e = Exp(-2.0f * (y - a));
  const float sum = 1.0f + e;
  const float difference = 1.0f - e;
  return __fdiv_rn(__fmaf_rn(t, sum, difference), __fmaf_rn(t, difference, sum));
}

__device__ inline float SoftCap(float x, float cap) { return cap * Tanh(__fdiv_rn(x, cap)); }

// IEEE binary16, exactly; a NaN becomes quiet.
__device__ inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    return __uint_as_float(sign | __float_as_uint(static_cast<float>(mantissa) * 0x1p-24f));
  }
  if (exponent == 31) {
    return __uint_as_float(sign | 0x7f800000u | (mantissa != 0 ? 0x400000u : 0u) | mantissa << 13);
  }
  return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}
__device__ inline float Bfloat16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// To the nearest, ties to even; saturates at +-65504.
__device__ inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477fe000u) {
    half = 0x7bffu;
  } else if (magnitude >= 0x38800000u) {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else {
    half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<uint16_t>(sign | half);
}

// To the nearest bfloat16, and to the nearest binary16, beyond whose range is infinity.
__device__ inline float RoundToBfloat16(float value) {
  const uint32_t bits = __float_as_uint(value);
  return value != value ? value
                        : __uint_as_float((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}
__device__ inline float RoundToHalf(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t sign = bits & 0x80000000u;
  const float magnitude = __uint_as_float(bits & 0x7fffffffu);
  if (!(magnitude < 65520.0f)) {
    return value != value ? value : __uint_as_float(sign | 0x7f800000u);
  }
  if (magnitude < 0x1p-14f) {
    return __uint_as_float(sign | __float_as_uint((magnitude + 0.5f) - 0.5f));
  }
  return __uint_as_float((bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

// 2^(b - 127), of 255 no number; and an 8-bit float (E4M3), of which all are numbers.
__device__ inline float ExponentToFloat(uint8_t b) {
  return __uint_as_float(b == 255 ? 0x7fc00000u : b == 0 ? 0x00400000u : uint32_t{b} << 23);
}
__device__ inline float Float8ToFloat(uint8_t b) {
  return __uint_as_float((b & 128u) << 24 | (b & 127u) << 20) * 0x1p120f;
}

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_KERNELS_FLOATS_INL_H_
