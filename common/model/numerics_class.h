// The name of what determines an answer's bits, apart from model, parameters and seed.
#ifndef STRATA_COMMON_MODEL_NUMERICS_CLASS_H_
#define STRATA_COMMON_MODEL_NUMERICS_CLASS_H_

#include <string>
#include <string_view>

namespace strata {

// "cpu-2/w=bf16,head=bf16,act=f32/kv=f16".
inline std::string NumericsClassName(std::string_view backend_numerics, std::string_view weights,
                                     std::string_view head, std::string_view activations,
                                     std::string_view kv) {
  return std::string(backend_numerics) + "/w=" + std::string(weights) +
         ",head=" + std::string(head) + ",act=" + std::string(activations) +
         "/kv=" + std::string(kv);
}

// Whether workers of such numerics, or of a class that begins with them, take activations in int8
// too: MLX's do not.
inline bool TakesInt8Activations(std::string_view backend_numerics) {
  return !backend_numerics.starts_with("mlx");
}

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_NUMERICS_CLASS_H_
