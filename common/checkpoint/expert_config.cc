#include "common/checkpoint/expert_config.h"

#include <algorithm>
#include <limits>
#include <string>
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
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMostFloat = std::numeric_limits<float>::max();  // Which clamps nothing.
constexpr uint64_t kMxfp4Block = 32;
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
      reader->Fail("mlp_only_layers",
                   absl::StrCat("holds ", QuotedValue(layer), ", which is none of the ", layers,
                                " layers of num_hidden_layers"));
      return mixtures;
    }
    mixtures[layer.get<uint64_t>()] = false;
  }
  return mixtures;
}

// The name of the experts' number in this file.
const char* ExpertsField(const ExpertRule& rule, FieldReader* reader) {
  const char* const found = reader->NameOf(kExpertCountFields);
  return reader->Has(found) ? found : rule.experts_field;
}

// What DeepSeek's configurations say besides, of layers with experts and shared ones as wide as
// mixture->ffn; and which layers are dense.
absl::Status ReadDeepSeek(const json& config, const ExpertRule& rule, MlpSpec* mixture,
                          std::vector<bool>* mixtures) {
  FieldReader reader(&config, "");
  const bool third = rule.scores == RouterScores::kSigmoid;
  const std::string scoring = third ? "sigmoid" : "softmax";
  if (const std::string said = reader.String("scoring_func", scoring); said != scoring) {
    reader.Fail("scoring_func", Quoted(said) + " is not supported yet");
  }
  if (reader.Uint("moe_layer_freq", 1, kMaxLayers, 1) != 1) {
    reader.Fail("moe_layer_freq", "other than 1 is not supported yet");
  }
  const std::string method = reader.String("topk_method", third ? "noaux_tc" : "greedy");
  if (third ? method != "noaux_tc" : method != "greedy" && method != "group_limited_greedy") {
    reader.Fail("topk_method", Quoted(method) + " is not supported yet");
  }
  RouterSpec& router = mixture->router;
  if (router.used == 0) {
    reader.Fail("num_experts_per_tok", "is missing");
  }
  router.corrected = third;
  if (third || method == "group_limited_greedy") {
    router.groups = static_cast<uint32_t>(reader.Uint("n_group", 1, kMostExpertGroups));
    router.groups_used = static_cast<uint32_t>(reader.Uint("topk_group", 1, kMostExpertGroups));
    router.group_best = third ? 2 : 1;
  }
  const uint32_t size = mixture->experts / router.groups;
  if (mixture->experts % router.groups != 0 || size < router.group_best) {
    reader.Fail("n_group",
                absl::StrCat(router.groups, " does not divide ", ExpertsField(rule, &reader), " ",
                             mixture->experts, " into groups that are large enough"));
  }
  if (router.groups_used > router.groups || router.groups_used * size < router.used) {
    reader.Fail("topk_group",
                absl::StrCat(router.groups_used, " of n_group ", router.groups,
                             " have no num_experts_per_tok ", router.used, " experts"));
  }
  router.scale = static_cast<float>(reader.Number("routed_scaling_factor", 1e-6, 1e6));
  const uint64_t shared = reader.Uint("n_shared_experts", 1, kMaxExperts) * mixture->ffn;
  if (shared > kMaxExpertFfn) {
    reader.Fail("n_shared_experts", "times moe_intermediate_size is too wide");
  }
  mixture->shared_ffn = static_cast<uint32_t>(shared);
  const uint64_t dense = reader.Uint("first_k_dense_replace", 0, kMaxLayers);
  for (uint64_t i = 0; i < std::min<uint64_t>(dense, mixtures->size()); ++i) {
    (*mixtures)[i] = false;
  }
  return reader.status();
}

// Experts that are stored in blocks of MXFP4 have whole blocks; others may have any width.
void CheckBlocks(const json& config, const char* ffn_field, FieldReader* reader) {
  const json* stored = reader->Find("quantization_config");
  if (stored == nullptr || !stored->is_object() ||
      stored->value("quant_method", json()) != "mxfp4") {
    return;
  }
  for (const char* field : {ffn_field, "hidden_size"}) {
    const json& size = config[field];
    if (size.is_number_unsigned() && size.get<uint64_t>() % kMxfp4Block != 0) {
      reader->Fail(field, absl::StrCat(QuotedValue(size), " is not a multiple of ", kMxfp4Block,
                                       ", the width of the blocks that quant_method mxfp4 says"));
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<MlpSpec>> ReadMlps(const json& config, const ExpertRule& rule,
                                              uint64_t layers, const MlpSpec& dense) {
  std::vector<MlpSpec> mlps(layers, dense);
  if (rule.experts_field == nullptr) {
    return mlps;
  }
  FieldReader reader(&config, "");
  const char* const experts_field = ExpertsField(rule, &reader);
  // A family that chooses layers may choose none.
  const uint64_t experts =
      reader.Uint(experts_field, rule.chooses_layers ? 0 : 1, kMaxExperts, rule.experts);
  const char* const used_field = "num_experts_per_tok";
  const uint64_t used = reader.Uint(used_field, 1, kMaxExperts, rule.used);
  // OpenAI's name, which transformers does not look at.
  if (const json* other = reader.Find("experts_per_token"); other != nullptr && *other != used) {
    reader.Fail(used_field, absl::StrCat("is ", used, reader.Has(used_field) ? "" : " by default",
                                         ", and experts_per_token ", QuotedValue(*other)));
  }
  const uint64_t ffn = rule.ffn == 0 ? reader.Uint(rule.ffn_field, 1, kMaxExpertFfn)
                                     : reader.Uint(rule.ffn_field, 1, kMaxExpertFfn, rule.ffn);
  std::vector<bool> mixtures = ReadMixtureLayers(rule, layers, &reader);
  // DeepSeek's second version has the field, and ignores it.
  const bool ignores = rule.deepseek && rule.scores == RouterScores::kSoftmax;
  // null is false.
  const bool by_default = rule.deepseek && !config.contains("norm_topk_prob");
  const bool renormalize =
      rule.renormalizes || (reader.Bool("norm_topk_prob", by_default) && !ignores);
  const double limit = rule.clamps ? reader.Number("swiglu_limit", 1e-3, kInfinity, 7.0) : 0;
  const double gain = rule.clamps ? reader.Number("swiglu_alpha", 1e-3, 1e3, 1.702) : 0;
  if (rule.names == ExpertNames::kGptOss) {
    CheckBlocks(config, rule.ffn_field, &reader);
  }
  if (experts != 0 && used > experts) {
    reader.Fail(used_field, absl::StrCat(used, " is above ", experts_field, " ", experts));
  }
  if (experts * layers > kMaxAllExperts) {
    reader.Fail(experts_field, absl::StrCat(experts, " times num_hidden_layers ", layers,
                                            " is above ", kMaxAllExperts));
  }
  RETURN_IF_ERROR(reader.status());
  MlpSpec mixture = dense;
  mixture.ffn = static_cast<uint32_t>(ffn);
  mixture.experts = static_cast<uint32_t>(experts);
  mixture.router = {static_cast<uint32_t>(used), rule.scores, renormalize, rule.biases};
  mixture.router.corrected = rule.corrected;
  mixture.bias = rule.biases;
  if (rule.clamps) {
    mixture.activation = ActivationKind::kClampedSilu;
    mixture.clamp = static_cast<float>(std::min<double>(limit, kMostFloat));
    mixture.gain = static_cast<float>(gain);
  }
  mixture.expert_names = rule.names;
  if (rule.deepseek) {
    RETURN_IF_ERROR(ReadDeepSeek(config, rule, &mixture, &mixtures));
  }
  for (uint64_t i = 0; i < layers && experts != 0; ++i) {
    if (mixtures[i]) {
      mlps[i] = mixture;
    }
  }
  return mlps;
}

}  // namespace strata
