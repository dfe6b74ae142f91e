// Weights quantized here. Activations are quantized by the kernels.
#ifndef STRATA_WORKER_BACKEND_CPU_WEIGHTS_QUANTIZE_H_
#define STRATA_WORKER_BACKEND_CPU_WEIGHTS_QUANTIZE_H_

#include <cstddef>
#include <cstdint>

#include "worker/backend/cpu/kernels/convert.h"

namespace strata::cpu {

// w = scale * (u - 128), symmetric: scale = max|w| / 127, u = 128 + rne(w * (127 / max|w|)), in 1
// to 255. All 128 with scale 0 where max|w| < 2^-100; scale NaN where a weight is no number.
void QuantizeInt8(const float* weights, size_t count, float* scale, uint8_t* u);

// w = scale * u + bias, u < 16, by MLX's rule: the end of larger magnitude is met exactly and zero
// is one of the values. Scale and bias are rounded to float16 first, then u = the nearest. Scale
// NaN where a weight is no number.
void QuantizeInt4(const float* weights, size_t count, F16* scale, F16* bias, uint8_t* u);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_WEIGHTS_QUANTIZE_H_
