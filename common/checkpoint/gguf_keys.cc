#include "common/checkpoint/gguf_keys.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr double kMostNumber = 1e30;

// Keys that change what is computed, and the largest number that means that they do not.
struct RefusedKey {
  const char* name;
  uint64_t neutral;
  bool of_mixtures = false;  // Elsewhere it says nothing, and files have it.
};
constexpr RefusedKey kRefusedCounts[] = {
    {"expert_shared_count", 0, true},  {"expert_shared_feed_forward_length", 0, true},
    {"expert_group_count", 1},         {"expert_group_used_count", 1},
    {"expert_gating_func", 1},         {"leading_dense_block_count", 0},
    {"interleave_moe_layer_step", 1},  {"moe_every_n_layers", 1},
    {"nextn_predict_layers", 0},       {"attention.q_lora_rank", 0},
    {"attention.kv_lora_rank", 0},     {"attention.key_length_mla", 0},
    {"attention.value_length_mla", 0},
};
constexpr RefusedKey kRefusedNumbers[] = {
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.temperature_scale", 0},
    {"router_logit_softcapping", 0},
    {"expert_weights_scale", 1},
    {"rope.scaling.alpha", 0},
    {"rope.scaling.yarn_log_multiplier", 0},
};
// The keys of attention and of rotation that are looked at, here or where what they mean is
// decided, or that say nothing of a model with RMS norms. Others would change what is computed.
constexpr std::string_view kAttentionKeys[] = {"head_count",
                                               "head_count_kv",
                                               "key_length",
                                               "value_length",
                                               "key_length_swa",
                                               "value_length_swa",
                                               "layer_norm_rms_epsilon",
                                               "layer_norm_epsilon",
                                               "causal",
                                               "clamp_kqv",
                                               "max_alibi_bias",
                                               "temperature_scale",
                                               "temperature_length",
                                               "scale",
                                               "q_lora_rank",
                                               "kv_lora_rank",
                                               "key_length_mla",
                                               "value_length_mla",
                                               "sliding_window",
                                               "sliding_window_pattern"};
constexpr std::string_view kRopeKeys[] = {"freq_base",
                                          "freq_base_swa",
                                          "dimension_count",
                                          "dimension_count_swa",
                                          "dimension_sections",
                                          "scale_linear",
                                          "scaling.type",
                                          "scaling.factor",
                                          "scaling.attn_factor",
                                          "scaling.original_context_length",
                                          "scaling.finetuned",
                                          "scaling.alpha",
                                          "scaling.yarn_log_multiplier",
                                          "scaling.yarn_ext_factor",
                                          "scaling.yarn_attn_factor",
                                          "scaling.yarn_beta_fast",
                                          "scaling.yarn_beta_slow"};

template <size_t kCount>
absl::Status CheckKnown(const std::string& prefix, const std::string_view (&known)[kCount],
                        const GgufHeader& header) {
  for (const auto& [key, value] : header.values) {
    if (key.starts_with(prefix) && std::find(std::begin(known), std::end(known),
                                             key.substr(prefix.size())) == std::end(known)) {
      return UnsupportedModel("key " + Quoted(key));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGgufKeys(const GgufArchitecture& architecture, const GgufHeader& header) {
  RETURN_IF_ERROR(CheckKnown(architecture.Key("attention."), kAttentionKeys, header));
  RETURN_IF_ERROR(CheckKnown(architecture.Key("rope."), kRopeKeys, header));
  GgufReader reader(&header);
  const auto unsupported = [&](const char* name) {
    return UnsupportedModel("key " + Quoted(architecture.Key(name)));
  };
  for (const RefusedKey& refused : kRefusedCounts) {
    if (!architecture.Reads(refused.name) &&
        reader.Uint(architecture.Key(refused.name), 0, UINT32_MAX, 0) > refused.neutral &&
        (architecture.mixture() || !refused.of_mixtures)) {
      return unsupported(refused.name);
    }
  }
  for (const RefusedKey& refused : kRefusedNumbers) {
    const double number =
        reader.Number(architecture.Key(refused.name), -kMostNumber, kMostNumber, 0);
    if (!architecture.Reads(refused.name) && number != 0 &&
        number != static_cast<double>(refused.neutral)) {
      return unsupported(refused.name);
    }
  }
  // Experts' weights add up to 1, also where the file does not say it.
  for (const char* name : {"attention.causal", "expert_weights_norm"}) {
    if (!architecture.Reads(name) && !reader.Bool(architecture.Key(name), true)) {
      return unsupported(name);
    }
  }
  if (constexpr char kSections[] = "rope.dimension_sections";
      !architecture.sections && reader.Find(architecture.Key(kSections)) != nullptr) {
    return unsupported(kSections);
  }
  if (reader.Bool(architecture.Key("use_parallel_residual"), false)) {
    return unsupported("use_parallel_residual");
  }
  return reader.status();
}

}  // namespace strata
