#include "worker/backend/cpu/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strata::cpu {
namespace {

// Below it a scale would be subnormal or its reciprocal infinite.
constexpr float kTiny = 0x1p-100f;
// The least step between two values that MLX uses.
constexpr float kLeastStep = 1e-7f;

bool AllNumbers(const float* weights, size_t count) {
  return std::all_of(weights, weights + count, [](float w) { return std::isfinite(w); });
}

}  // namespace

void QuantizeInt8(const float* weights, size_t count, float* scale, uint8_t* u) {
  std::fill(u, u + count, uint8_t{128});
  *scale = 0;
  if (!AllNumbers(weights, count)) {
    *scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  float largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(weights[i]));
  }
  if (largest < kTiny) {
    return;
  }
  *scale = largest / 127.0f;
  const float factor = 127.0f / largest;
  for (size_t i = 0; i < count; ++i) {
    u[i] = static_cast<uint8_t>(128 + static_cast<int>(std::nearbyintf(weights[i] * factor)));
  }
}

void QuantizeInt4(const float* weights, size_t count, F16* scale, F16* bias, uint8_t* u) {
  std::fill(u, u + count, uint8_t{0});
  if (!AllNumbers(weights, count)) {
    *scale = F16{0x7e00};
    *bias = F16{0};
    return;
  }
  const auto [least, most] = std::minmax_element(weights, weights + count);
  const bool from_least = std::fabs(*least) > std::fabs(*most);
  const float edge = from_least ? *least : *most;
  float step = std::max((*most - *least) / 15.0f, kLeastStep);
  step = from_least ? step : -step;
  const float steps = std::nearbyintf(edge / step);
  *scale = ToF16(steps == 0 ? step : edge / steps);
  *bias = ToF16(steps == 0 ? 0.0f : edge);
  const float s = ToF32(*scale);
  const float b = ToF32(*bias);
  if (s == 0) {
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    u[i] = static_cast<uint8_t>(std::clamp(std::nearbyintf((weights[i] - b) / s), 0.0f, 15.0f));
  }
}

}  // namespace strata::cpu
