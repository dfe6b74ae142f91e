// How wide the rows are that the steps of a stage compute in, on any device.
#ifndef STRATA_COMMON_MODEL_ROW_WIDTHS_H_
#define STRATA_COMMON_MODEL_ROW_WIDTHS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/model/model_spec.h"

namespace strata {

// Rows begin so many floats apart, or a multiple of it.
inline constexpr size_t kRowFloats = 16;

// In floats, of the layer that needs the most, in whole kRowFloats; 0: no layer needs it. By it
// backends allocate and the planner counts.
struct RowWidths {
  RowWidths() = default;
  // Of the layers [first_layer, last_layer].
  RowWidths(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer);
  // Between the matrices of the MLP, of all experts of a row.
  size_t Within() const { return std::max(ffn, used * expert_ffn); }

  size_t hidden = 0;   // Of the residual stream.
  size_t queries = 0;  // Of all query heads, or of their values.
  size_t keys = 0;     // Of all KV heads, or of what latent layers keep.
  size_t values = 0;   // The same of values.
  // With latent vectors: the vector that queries come out of; all heads' queries with the keys'
  // up-projection absorbed, so that they are scored with what is kept; and what they sum.
  size_t query_rank = 0;
  size_t absorbed = 0;
  size_t summed = 0;
  size_t ffn = 0;         // Within a dense MLP, or within shared experts.
  size_t expert_ffn = 0;  // Within one expert.
  size_t experts = 0;     // The router's logits.
  size_t used = 0;        // Experts of a row, not floats.
};

// The most inputs that one of a layer's attention matrices has.
size_t AttentionInputs(const AttentionSpec& attention);
// The rows within a layer's dense MLP or its shared experts.
uint32_t DenseWidth(const MlpSpec& mlp);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_ROW_WIDTHS_H_
