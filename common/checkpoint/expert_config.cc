#include "common/checkpoint/expert_config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxExperts = 1024;
// Of all layers: their tensors are named one by one.
constexpr uint64_t kMaxAllExperts = uint64_t{1} << 17;
constexpr uint64_t kMaxExpertFfn = uint64_t{kMaxHiddenSize} * 4;

// The layers that are mixtures.
std::vector<bool> ReadMixtureLayers(const ExpertRule& rule, uint64_t layers, FieldReader* reader) {
  std::vector<bool> mixtures(layers, true);
  if (!rule.chooses_layers) {
    return mixtures;
  }
  const uint64_t step = reader->Uint("decoder_sparse_step", 1, kMaxLayers, 1);
  for (uint64_t i = 0; i < layers; ++i) {
    mixtures[i] = (i + 1) % step == 0;
  }
  const json* list = reader->Find("mlp_only_layers");
  if (list == nullptr) {
    return mixtures;
  }
  if (!list->is_array()) {
    reader->Fail("mlp_only_layers", QuotedValue(*list) + " is not a list of layers");
    return mixtures;
  }
  for (const json& layer : *list) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= layers) {
      reader->Fail("mlp_only_layers", absl::StrCat("holds ", QuotedValue(layer),
                                                   ", which is none of the ", layers, " layers"));
      return mixtures;
    }
    mixtures[layer.get<uint64_t>()] = false;
  }
  return mixtures;
}

}  // namespace

absl::StatusOr<std::vector<MlpSpec>> ReadMlps(const json& config, const ExpertRule& rule,
                                              uint64_t layers, const MlpSpec& dense) {
  std::vector<MlpSpec> mlps(layers, dense);
  if (rule.experts_field == nullptr) {
    return mlps;
  }
  FieldReader reader(&config, "");
  // A family that chooses layers may choose none.
  const uint64_t experts =
      reader.Uint(rule.experts_field, rule.chooses_layers ? 0 : 1, kMaxExperts, rule.experts);
  const uint64_t used = reader.Uint("num_experts_per_tok", 1, kMaxExperts, rule.used);
  const uint64_t ffn = rule.ffn == 0 ? reader.Uint(rule.ffn_field, 1, kMaxExpertFfn)
                                     : reader.Uint(rule.ffn_field, 1, kMaxExpertFfn, rule.ffn);
  const std::vector<bool> mixtures = ReadMixtureLayers(rule, layers, &reader);
  const bool renormalize = rule.renormalizes || reader.Bool("norm_topk_prob", false);
  const double limit = rule.clamps ? reader.Number("swiglu_limit", 1e-3, 1e6, 7.0) : 0;
  if (rule.names == ExpertNames::kGptOss && ffn % 32 != 0) {
    reader.Fail(rule.ffn_field, absl::StrCat(ffn, " is not a multiple of 32"));
  }
  if (experts != 0 && used > experts) {
    reader.Fail("num_experts_per_tok",
                absl::StrCat(used, " is above ", rule.experts_field, " ", experts));
  }
  if (experts * layers > kMaxAllExperts) {
    reader.Fail(rule.experts_field, absl::StrCat(experts, " times num_hidden_layers ", layers,
                                                 " is above ", kMaxAllExperts));
  }
  RETURN_IF_ERROR(reader.status());
  MlpSpec mixture = dense;
  mixture.ffn = static_cast<uint32_t>(ffn);
  mixture.experts = static_cast<uint32_t>(experts);
  mixture.router = {static_cast<uint32_t>(used), rule.scores, renormalize, rule.biases};
  mixture.bias = rule.biases;
  if (rule.clamps) {
    mixture.activation = ActivationKind::kClampedSilu;
    mixture.clamp = static_cast<float>(limit);
  }
  mixture.expert_names = rule.names;
  for (uint64_t i = 0; i < layers && experts != 0; ++i) {
    if (mixtures[i]) {
      mlps[i] = mixture;
    }
  }
  return mlps;
}

}  // namespace strata
