#include "worker/backend/cpu/weights/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace strata::cpu {
namespace {

// Below it a scale would be subnormal or its reciprocal infinite.
constexpr float kTiny = 0x1p-100f;
// The least step between two values that MLX uses.
constexpr float kLeastStep = 1e-7f;

// Adding 1.5 * 2^23 rounds to the nearest whole number, ties to even, and leaves it in the low
// bits. Unlike a call of the library's it is done for many numbers at once.
constexpr float kMagic = 12582912.0f;
constexpr int32_t kMagicBits = 0x4b400000;
inline int32_t Rounded(float x) { return std::bit_cast<int32_t>(x + kMagic) - kMagicBits; }

// The largest magnitude; infinity or a NaN when a weight is no number, whose bits are above all
// numbers'.
float LargestMagnitude(const float* weights, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(weights[i]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(largest);
}

}  // namespace

void QuantizeInt8(const float* weights, size_t count, float* scale, uint8_t* u) {
  const float largest = LargestMagnitude(weights, count);
  if (!std::isfinite(largest) || largest < kTiny) {
    std::fill(u, u + count, uint8_t{128});
    *scale = std::isfinite(largest) ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    return;
  }
  *scale = largest / 127.0f;
  const float factor = 127.0f / largest;
  for (size_t i = 0; i < count; ++i) {
    u[i] = static_cast<uint8_t>(128 + Rounded(weights[i] * factor));
  }
}

void QuantizeInt4(const float* weights, size_t count, F16* scale, F16* bias, uint8_t* u) {
  if (!std::isfinite(LargestMagnitude(weights, count))) {
    std::fill(u, u + count, uint8_t{0});
    *scale = F16{0x7e00};
    *bias = F16{0};
    return;
  }
  float least = weights[0];
  float most = weights[0];
  for (size_t i = 0; i < count; ++i) {
    least = std::min(least, weights[i]);
    most = std::max(most, weights[i]);
  }
  const bool from_least = std::fabs(least) > std::fabs(most);
  const float edge = from_least ? least : most;
  float step = std::max((most - least) / 15.0f, kLeastStep);
  step = from_least ? step : -step;
  const float steps = std::nearbyintf(edge / step);
  *scale = ToF16(steps == 0 ? step : edge / steps);
  *bias = ToF16(steps == 0 ? 0.0f : edge);
  const float s = ToF32(*scale);
  const float b = ToF32(*bias);
  if (s == 0) {
    std::fill(u, u + count, uint8_t{0});
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    u[i] = static_cast<uint8_t>(Rounded(std::min(std::max((weights[i] - b) / s, 0.0f), 15.0f)));
  }
}

}  // namespace strata::cpu
