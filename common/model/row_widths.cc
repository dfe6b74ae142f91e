#include "common/model/row_widths.h"

namespace strata {
namespace {

// All heads' queries before the output projection, or their values.
size_t HeadsWidth(const AttentionSpec& attention) {
  return std::max<size_t>(size_t{attention.heads} * attention.head_dim, attention.OutputInputs());
}

}  // namespace

size_t AttentionInputs(const AttentionSpec& attention) {
  return std::max<size_t>(HeadsWidth(attention), attention.latent.query_rank);
}

uint32_t DenseWidth(const MlpSpec& mlp) { return mlp.experts != 0 ? mlp.shared_ffn : mlp.ffn; }

RowWidths::RowWidths(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer) {
  const auto most = [](size_t* width, size_t floats) {
    *width = std::max(*width, (floats + kRowFloats - 1) / kRowFloats * kRowFloats);
  };
  most(&hidden, spec.hidden);
  for (uint32_t i = first_layer; i <= last_layer; ++i) {
    const AttentionSpec& attention = spec.layers[i].attention;
    const MlpSpec& mlp = spec.layers[i].mlp;
    const LatentSpec& latent = attention.latent;
    most(&queries, HeadsWidth(attention));
    if (latent.rank != 0) {
      most(&keys, size_t{attention.kv_heads} * latent.kept());
      most(&absorbed, size_t{attention.heads} * latent.kept());
      most(&summed, size_t{attention.heads} * latent.rank);
    } else {
      most(&keys, size_t{attention.kv_heads} * attention.head_dim);
      most(&values, size_t{attention.kv_heads} * attention.head_dim);
    }
    most(&query_rank, latent.query_rank);
    most(&ffn, DenseWidth(mlp));
    if (mlp.experts != 0) {
      most(&experts, mlp.experts);
      most(&expert_ffn, mlp.ffn);
      used = std::max<size_t>(used, mlp.router.used);
    }
  }
}

}  // namespace strata
