#include "tests/mutations/gguf_meaning.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "common/model_spec.h"

namespace strata::testing {
namespace {

// Facts that a key decides: of layers those that have what the key said before.
struct Meaning {
  const char* key;
  std::vector<const char*> of_layers;
  std::vector<const char*> of_model;
};
const Meaning kMeanings[] = {{"rope.freq_base", {"rope.theta"}, {}},
                             {"rope.freq_base_swa", {"rope.theta"}, {}},
                             {"rope.dimension_count", {"rope.dim"}, {}},
                             {"layer_norm_rms_epsilon", {"norm_eps"}, {"final_norm_eps"}},
                             {".context_length", {}, {"context"}},
                             {"rope.scaling.attn_factor", {"rope.magnitude"}, {}},
                             {"attention.sliding_window", {"window"}, {}},
                             {"attn_logit_softcapping", {"soft_cap"}, {}},
                             {"final_logit_softcapping", {}, {"final_soft_cap"}},
                             {"expert_used_count", {"router.used"}, {}},
                             {"attention.scale", {"scale"}, {}},
                             {"embedding_scale", {}, {"embedding_scale", "input_embedding_scale"}},
                             {"residual_scale", {"branch_scale"}, {}},
                             {"logit_scale", {}, {"logits_divisor"}},
                             {"ggml.bos_token_id", {}, {"bos"}}};

// Keys whose 0 is as if they were not there.
bool IsScale(const Field& field) {
  for (const char* key : {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"}) {
    if (field.owner.ends_with(key)) return true;
  }
  return false;
}

std::vector<std::string> LayersWith(const Wanted& wanted, const char* name, double value) {
  std::vector<std::string> layers;
  for (uint64_t i = 0; i < wanted.layers(); ++i) {
    if (wanted.facts.at(FactOfLayer(i, name)) == value) layers.push_back(FactOfLayer(i, ""));
  }
  return layers;
}

// What keys of scaling decide where the file is scaled, and what follows from it.
void AddScaling(const Field& field, std::optional<double> number, Wanted* wanted) {
  const double linear = static_cast<double>(RopeScaling::kLinear);
  const auto has = [&](RopeScaling scaling) {
    return !LayersWith(*wanted, "rope.scaling", static_cast<double>(scaling)).empty();
  };
  const bool yarn = has(RopeScaling::kYarn);
  const bool scales = number && *number != 0 && *number != 1;
  if (field.owner.ends_with("rope.scaling.factor") && scales) {
    if (!yarn && !has(RopeScaling::kLinear)) wanted->SetInLayers("rope.scaling", linear);
    if (yarn) {
      wanted->SetInLayers("rope.factor", *number);
    } else {
      for (const std::string& layer : LayersWith(*wanted, "rope.scaling", linear)) {
        wanted->facts[layer + "rope.factor"] = *number;
      }
    }
    wanted->open.insert("rope.magnitude");
  } else if ((yarn || has(RopeScaling::kLinear)) && (field.owner.ends_with("rope.scaling.factor") ||
                                                     field.owner.ends_with("rope.scaling.type"))) {
    wanted->open.insert("rope");
  } else if (yarn && (field.owner.find("yarn_beta") != std::string::npos ||
                      field.owner.ends_with("rope.freq_base"))) {
    wanted->open.insert({"rope.yarn_low", "rope.yarn_high"});
  } else if (field.owner.ends_with("original_context_length") &&
             (yarn || has(RopeScaling::kLongRope))) {
    wanted->open.insert({"rope.yarn_low", "rope.yarn_high"});
    number ? wanted->SetInLayers("rope.original", *number)
           : void(wanted->open.insert("rope.original"));
  }
}

}  // namespace

Wanted WantedOf(const Facts& valid, const Field& field, const std::string& valid_file,
                const std::string& file) {
  Wanted wanted{valid, {}};
  const bool whole = field.what == "value";
  auto number = whole ? NumberAt(file, field) : std::nullopt;
  if (IsScale(field) && number.value_or(0) == 0) number = std::nullopt;
  for (const Meaning& meaning : kMeanings) {
    if (!field.owner.ends_with(meaning.key)) continue;
    for (const char* name : meaning.of_layers) {
      if (!number) {
        wanted.open.insert(name);
        continue;
      }
      const double before = *NumberAt(valid_file, field);
      for (uint64_t i = 0; i < wanted.layers(); ++i) {
        double& fact = wanted.facts.at(FactOfLayer(i, name));
        if (static_cast<float>(fact) == static_cast<float>(before)) fact = *number;
      }
    }
    for (const char* name : meaning.of_model) {
      number ? void(wanted.facts[name] = *number) : void(wanted.open.insert(name));
    }
  }
  for (const char* end : {"ggml.eos_token_id", "ggml.eot_token_id", "ggml.eom_token_id",
                          "ggml.tokens", "ggml.token_type"}) {
    if (field.owner.ends_with(end)) wanted.open.insert("eos");
  }
  // Without a window, or with another order of them, layers are of the other kind.
  if (field.owner.ends_with("sliding_window_pattern") ||
      (field.owner.ends_with("sliding_window") && number.value_or(0) == 0)) {
    wanted.open.insert({"window", "kept_by", "rope"});
  }
  // A window as long as the context is none.
  for (uint64_t i = 0; i < wanted.layers(); ++i) {
    double& window = wanted.facts.at(FactOfLayer(i, "window"));
    if (window != 0 && window >= wanted.facts.at("context")) {
      window = 0;
      wanted.facts.at(FactOfLayer(i, "kept_by")) = static_cast<double>(KvKind::kFull);
    }
  }
  AddScaling(field, number, &wanted);
  return wanted;
}

std::vector<std::string> CheckpointNames(const std::string& tensor) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"attn_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"},
      {"ffn_norm", "pre_feedforward_layernorm"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"attn_sinks", "self_attn.sinks"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_up", "mlp.gate_up_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"ffn_gate_inp", "mlp.gate"},
      {"ffn_gate_inp", "mlp.router"},
      {"ffn_gate_inp", "block_sparse_moe.gate"}};
  const size_t kind = tensor.rfind('.');
  const size_t begin = tensor.starts_with("blk.") ? tensor.find('.', 4) + 1 : 0;
  std::vector<std::string> names;
  if (kind == tensor.npos || kind < begin) {
    return names;
  }
  for (const auto& [gguf, name] : kNames) {
    if (tensor.substr(begin, kind - begin) == gguf) {
      names.push_back((begin == 0 ? "" : "model.layers." + tensor.substr(4, begin - 4)) + name +
                      tensor.substr(kind));
    }
  }
  return names;
}

std::vector<std::string> NamesOf(const Field& field) {
  constexpr std::pair<const char*, const char*> kConfig[] = {
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count", "head_dim"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"attention.scale", "attention_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"logit_scale", "logits_scaling"},
      {"attention.head_count_kv", "num_key_value_heads"},
      {"attention.key_length", "head_dim"},
      {"layer_norm_rms_epsilon", "rms_norm_eps"},
      {"context_length", "max_position_embeddings"},
      {"rope.freq_base", "rope_theta"},
      {"rope.freq_base_swa", "rope_local_base_freq"},
      {"rope.dimension_count", "short_factor"},
      {"rope.scaling.factor", "factor"},
      {"rope.scaling.attn_factor", "attention_factor"},
      {"rope.scaling.original_context_length", "original_max_position_embeddings"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
      {"attention.sliding_window", "sliding_window"},
      {"expert_count", "experts"},
      {"expert_used_count", "num_experts_per_tok"},
      {"expert_feed_forward_length", "intermediate_size"}};
  std::vector<std::string> names = CheckpointNames(field.owner);
  if (!field.owner.empty()) names.push_back(field.owner);
  for (const auto& [key, name] : kConfig) {
    if (field.owner.ends_with(key)) names.emplace_back(name);
  }
  // Another architecture's keys are not there, or its tensors are others.
  if (field.owner == "general.architecture") {
    names.insert(names.end(), {"attention.head_count", "embedding_length", "tensor \""});
  }
  // What stands behind a wrong length is read as something else; a name or type that is wrong is
  // named as it is.
  if (field.owner.empty() || field.what != "value") {
    names.insert(names.end(), {"key \"", "tensor \"", "a key", "a tensor's name", "the version",
                               "counts", "begin with GGUF", "is of version", "is big-endian"});
  }
  return names;
}

}  // namespace strata::testing
