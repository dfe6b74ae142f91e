#include "common/footprint/rank_footprint.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"

namespace strata {
namespace {

constexpr std::string_view kLayerPath = "model.layers.";

bool Has(std::string_view path, std::string_view part) {
  return path.find(part) != std::string_view::npos;
}

}  // namespace

uint64_t RankBufferBytes(const Footprint& of_one, const ModelSpec& spec, uint32_t max_batch_tokens,
                         bool heads, uint32_t context) {
  const auto last_layer = static_cast<uint32_t>(spec.layers.size()) - 1;
  return of_one.BufferBytes(spec, max_batch_tokens, heads, context) +
         MostGatheredBytes(spec, 0, last_layer, max_batch_tokens, heads);
}

RankFootprint::RankFootprint(const Footprint& of_one, const ModelSpec& spec, RankOfStage rank)
    : of_one_(of_one),
      spec_(spec),
      rank_(std::move(rank)),
      own_spec_(WithHeadsOf(rank_.outputs, spec)) {}

uint64_t RankFootprint::WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                                    v1::Quantize quantize) const {
  const uint64_t whole = of_one_.WeightBytes(tensor, dtype, stored_bytes, quantize);
  const Part part = PartOf(tensor.name);
  return part.all == 0 ? 0 : (whole * part.own + part.all - 1) / part.all;
}

RankFootprint::Part RankFootprint::PartOf(std::string_view name) const {
  const uint64_t vocab = std::max(1u, spec_.vocab);
  const uint64_t own_vocab = rank_.outputs.vocab.size();
  if (Has(name, "model.embed_tokens.")) {
    const bool table = rank_.first && rank_.embeds;
    const bool head = rank_.heads && spec_.tied_head;
    // One rank that has all of a tied matrix embeds with the head's.
    const bool both = own_vocab < vocab || !head;
    return {(table && both ? vocab : 0) + (head ? own_vocab : 0), vocab};
  }
  if (Has(name, "lm_head.")) {
    return {own_vocab, vocab};
  }
  const size_t at = name.find(kLayerPath);
  uint32_t layer = 0;
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = name.substr(at + kLayerPath.size());
  const size_t dot = rest.find('.');
  const bool number = absl::SimpleAtoi(std::string(rest.substr(0, dot)), &layer);
  if (!number || layer >= spec_.layers.size() || dot == std::string_view::npos) {
    return {};
  }
  return PartOfLayer(spec_.layers[layer], rank_.outputs.layers[layer], rest.substr(dot + 1));
}

RankFootprint::Part RankFootprint::PartOfLayer(const LayerSpec& layer, const LayerOutputs& own,
                                               std::string_view path) const {
  const AttentionSpec& attention = layer.attention;
  const Part of_heads = {own.heads.size(), attention.heads};
  const Part of_hidden = {rank_.outputs.hidden.size(), spec_.hidden};
  if (Has(path, "self_attn.")) {
    if (Has(path, "norm.") || Has(path, ".q_a_proj") || Has(path, ".kv_a_proj")) {
      return {};
    }
    if (Has(path, ".qkv_proj")) {
      return {own.heads.size() + uint64_t{2} * own.kv_heads.size(),
              attention.heads + uint64_t{2} * attention.kv_heads};
    }
    if (Has(path, ".k_proj") || Has(path, ".v_proj")) {
      return {own.kv_heads.size(), attention.kv_heads};
    }
    return Has(path, ".o_proj") ? of_hidden : of_heads;
  }
  const bool shared = Has(path, "shared_expert");
  const bool expert = IsOfExperts(path);
  if (!shared && !expert && (layer.mlp.experts != 0 || !Has(path, "mlp."))) {
    return {};  // Norms and routers.
  }
  if (Has(path, "down_proj") || Has(path, ".w2.")) {
    return of_hidden;
  }
  return shared ? Part{own.shared_ffn.size(), layer.mlp.shared_ffn}
                : Part{own.ffn.size(), layer.mlp.ffn};
}

uint64_t RankFootprint::PageBytes(const ModelSpec& /*spec*/, uint32_t first_layer,
                                  uint32_t last_layer, uint32_t group, v1::KvDtype dtype) const {
  return of_one_.PageBytes(own_spec_, first_layer, last_layer, group, dtype);
}

uint64_t RankFootprint::BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                                    uint32_t context) const {
  return RankBufferBytes(of_one_, spec, max_batch_tokens, heads, context);
}

uint64_t RankFootprint::HostBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                                  uint32_t context) const {
  return of_one_.HostBytes(spec, max_batch_tokens, heads, context);
}

}  // namespace strata
