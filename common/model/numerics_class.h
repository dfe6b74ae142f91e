// The name of what determines an answer's bits, apart from model, parameters and seed.
#ifndef STRATA_COMMON_MODEL_NUMERICS_CLASS_H_
#define STRATA_COMMON_MODEL_NUMERICS_CLASS_H_

#include <cstdint>
#include <span>
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

// Layers that a stage computes, and the numerics of its node: "cpu-2".
struct LayerNumerics {
  std::string_view numerics;
  uint32_t first_layer = 0;
  uint32_t last_layer = 0;
};

// The numerics of all stages, which are in order and hold every layer: "cpu-2" where they are
// equal, else which layers are computed in which, "cpu-2:0-9+mlx-1.cpu.0.32.4:10-31". How layers of
// equal numerics are divided does not show. Every string is a name for the whole where it is none
// of several.
std::string NumericsOfStages(std::span<const LayerNumerics> stages);

// Of the numerics that a class begins with, or of such a name alone: those in which these layers
// are computed; "" where they are not all computed alike, or the name does not have them.
std::string NumericsOfLayers(std::string_view numerics_class, uint32_t first_layer,
                             uint32_t last_layer);

// The class of these layers as if all of the model were computed so, or "" likewise.
std::string ClassOfLayers(std::string_view numerics_class, uint32_t first_layer,
                          uint32_t last_layer);

// The class of a model that is loaded as in this one, where nodes of these numerics compute it.
std::string ClassAsIn(std::string_view numerics_class, std::string_view numerics);

// Whether a class's layers are not all computed alike.
bool IsMixed(std::string_view numerics_class);

// Whether workers of such numerics, or of a class that begins with them, take activations in int8
// too: MLX's do not.
bool TakesInt8Activations(std::string_view backend_numerics);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_NUMERICS_CLASS_H_
