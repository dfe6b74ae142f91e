#include "common/model/model_spec.h"

#include <algorithm>

#include "common/limits.h"
#include "common/model/stored_matrix.h"

namespace strata {

namespace {

struct DtypeRow {
  Dtype dtype;
  const char* name;
  size_t bits;
};
constexpr DtypeRow kDtypes[] = {
    {Dtype::kF32, "F32", 32},
    {Dtype::kF16, "F16", 16},
    {Dtype::kBF16, "BF16", 16},
    {Dtype::kU8, "U8", 8},
    {Dtype::kI8, "I8", 8},
    {Dtype::kU32, "U32", 32},
    {Dtype::kI32, "I32", 32},
    {Dtype::kI64, "I64", 64},
    {Dtype::kF64, "F64", 64},
    {Dtype::kF8E4M3, "F8_E4M3", 8},
    {Dtype::kF8E8M0, "F8_E8M0", 8},
    {Dtype::kF8E5M2, "F8_E5M2", 8},
    {Dtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {Dtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {Dtype::kF4, "F4", 4},
    {Dtype::kF6E2M3, "F6_E2M3", 6},
    {Dtype::kF6E3M2, "F6_E3M2", 6},
    {Dtype::kBool, "BOOL", 8},
    {Dtype::kU16, "U16", 16},
    {Dtype::kI16, "I16", 16},
    {Dtype::kU64, "U64", 64},
    {Dtype::kC64, "C64", 64},
    {Dtype::kQ4_0, "Q4_0", 0},
    {Dtype::kQ4_1, "Q4_1", 0},
    {Dtype::kQ5_0, "Q5_0", 0},
    {Dtype::kQ5_1, "Q5_1", 0},
    {Dtype::kQ8_0, "Q8_0", 0},
    {Dtype::kQ4_K, "Q4_K", 0},
    {Dtype::kQ5_K, "Q5_K", 0},
    {Dtype::kQ6_K, "Q6_K", 0},
    {Dtype::kMXFP4, "MXFP4", 0},
    {Dtype::kQ2_K, "Q2_K", 0},
    {Dtype::kQ3_K, "Q3_K", 0},
    {Dtype::kIQ4_NL, "IQ4_NL", 0},
    {Dtype::kIQ4_XS, "IQ4_XS", 0},
    {Dtype::kNVFP4, "NVFP4", 0},
    {Dtype::kNF4, "NF4", 0},
    {Dtype::kFP4, "FP4", 0},
    {Dtype::kNVFP4BF16, "NVFP4_BF16", 0},
};

}  // namespace

size_t DtypeBits(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bits; }

size_t DtypeBytes(Dtype dtype) {
  const size_t bits = DtypeBits(dtype);
  return bits % 8 == 0 ? bits / 8 : 0;
}

const char* DtypeName(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

std::optional<Dtype> DtypeOfName(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (name == row.name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

std::string KvGroupName(const KvGroupSpec& group) {
  switch (group.kind) {
    case KvKind::kFull:
      return "full";
    case KvKind::kWindow:
      return "window-" + std::to_string(group.window);
    case KvKind::kMla:
      return "mla";
  }
  return "?";
}

uint64_t MostKvPages(const KvGroupSpec& group, uint64_t length, uint64_t rows) {
  const uint64_t pages = (length + kPageTokens - 1) / kPageTokens;
  if (group.kind != KvKind::kWindow) {
    return pages;
  }
  // Keys from the first that the oldest such token sees, in pages that begin and end anywhere.
  return std::min(pages, (rows + group.window + 2 * kPageTokens - 3) / kPageTokens);
}

LayerNormNames NormNames(NormPlaces places) {
  switch (places) {
    case NormPlaces::kBefore:
      return {.before_attention = "input_layernorm", .before_mlp = "post_attention_layernorm"};
    case NormPlaces::kAfter:
      return {.after_attention = "post_attention_layernorm",
              .after_mlp = "post_feedforward_layernorm"};
    case NormPlaces::kAround:
      return {.before_attention = "input_layernorm",
              .after_attention = "post_attention_layernorm",
              .before_mlp = "pre_feedforward_layernorm",
              .after_mlp = "post_feedforward_layernorm"};
    case NormPlaces::kAroundGlm4:
      return {.before_attention = "input_layernorm",
              .after_attention = "post_self_attn_layernorm",
              .before_mlp = "post_attention_layernorm",
              .after_mlp = "post_mlp_layernorm"};
  }
  return {};
}

bool StaysAsStored(std::string_view tensor) {
  const std::string_view path = PathOfWeights(tensor);
  return IsRouter(tensor) || path.ends_with(".self_attn.kv_b_proj") ||
         path.ends_with(".self_attn.embed_q") || path.ends_with(".self_attn.unembed_out") ||
         path.ends_with(".self_attn.k_b_proj") || path.ends_with(".self_attn.v_b_proj");
}

std::vector<RopeSpec> RopesOf(const ModelSpec& spec) {
  std::vector<RopeSpec> ropes;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    if (attention.rotates && std::find(ropes.begin(), ropes.end(), attention.rope) == ropes.end()) {
      ropes.push_back(attention.rope);
    }
  }
  return ropes;
}

namespace {

// Of one rope.
uint64_t TableFloats(const RopeSpec& rope, uint32_t context) {
  return uint64_t{context} * rope.rotary_dim;
}

}  // namespace

uint64_t RotaryFloats(const ModelSpec& spec, uint32_t context) {
  uint64_t floats = 0;
  for (const RopeSpec& rope : RopesOf(spec)) {
    floats += rope.variants() * TableFloats(rope, context);
  }
  return floats;
}

uint64_t RotaryOffset(const ModelSpec& spec, uint32_t layer, uint32_t variant, uint32_t context) {
  const RopeSpec& wanted = spec.layers[layer].attention.rope;
  uint64_t floats = 0;
  for (const RopeSpec& rope : RopesOf(spec)) {
    if (rope == wanted) {
      break;
    }
    floats += rope.variants() * TableFloats(rope, context);
  }
  return floats + std::min(variant, wanted.variants() - 1) * TableFloats(wanted, context);
}

uint32_t RotaryVariants(const ModelSpec& spec) {
  uint32_t variants = 1;
  for (const RopeSpec& rope : RopesOf(spec)) {
    variants = std::max(variants, rope.variants());
  }
  return variants;
}

uint32_t LongRotaryAbove(const ModelSpec& spec) {
  for (const RopeSpec& rope : RopesOf(spec)) {
    if (rope.variants() > 1) {
      return static_cast<uint32_t>(rope.original_context);
    }
  }
  return 0;
}

uint64_t KvBytesPerToken(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                         uint32_t group, uint32_t element_bytes) {
  uint64_t bytes = 0;
  for (uint32_t i = first_layer; i <= last_layer && i < spec.layers.size(); ++i) {
    const AttentionSpec& a = spec.layers[i].attention;
    if (a.kv_group == group) {
      bytes += a.KvNumbers() * element_bytes;
    }
  }
  return bytes;
}

}  // namespace strata
