#include "common/checkpoint/tensor_fields.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "common/check.h"

namespace strata {
namespace {

// What is beside or in place of the weights of a matrix that is stored quantized.
constexpr std::string_view kQuantized[] = {".qweight",      ".weight_packed",    ".scales",
                                           ".weight_scale", ".weight_scale_inv", "_blocks",
                                           "_scale_inv"};

bool HasPrefix(const Checkpoint& checkpoint, std::string_view prefix) {
  const auto found = std::lower_bound(
      checkpoint.tensors.begin(), checkpoint.tensors.end(), prefix,
      [](const TensorEntry& tensor, std::string_view start) { return tensor.name < start; });
  return found != checkpoint.tensors.end() && found->name.starts_with(prefix);
}

// Whether it is, or is the weight or bias of, a matrix that is stored quantized.
bool IsOfQuantized(const Checkpoint& checkpoint, std::string_view name) {
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  if (std::any_of(std::begin(kQuantized), std::end(kQuantized), ends)) {
    return true;
  }
  const std::string path(name.ends_with(".weight") ? name.substr(0, name.rfind('.')) : name);
  return std::any_of(std::begin(kQuantized), std::end(kQuantized), [&](std::string_view suffix) {
    return checkpoint.Find(path + std::string(suffix)) != nullptr;
  });
}

// Whether the family says which of its layers are mixtures, and how wide these are apart.
bool ChoosesLayers(const std::string& family) {
  return family == "qwen3_moe" || family == "qwen3_vl_moe";
}

// Whether the family has DeepSeek's mixtures.
bool HasSharedExperts(const std::string& family) {
  return family.starts_with("deepseek") || family == "kimi_k2" || family.starts_with("glm4_moe");
}

void AddOfExperts(const std::string& family, std::set<std::string>* fields) {
  if (ChoosesLayers(family)) {
    fields->insert({"num_experts", "num_local_experts", "decoder_sparse_step", "mlp_only_layers"});
  } else if (HasSharedExperts(family)) {
    fields->insert({"n_routed_experts", "n_shared_experts", "first_k_dense_replace"});
    if (family == "glm4_moe_lite") {
      fields->insert("mlp_layer_types");
    }
  } else if (family == "mixtral" || family == "gpt_oss" || family == "minimax_m2") {
    fields->insert({"num_experts", "num_local_experts"});
  }
}

// Of a tensor of a layer, by its name below "model.layers.N.".
void AddSizesOfAttention(const AttentionSpec& attention, std::string_view rest,
                         std::set<std::string>* fields) {
  fields->insert("num_attention_heads");
  if (attention.latent.rank == 0) {
    fields->insert("head_dim");
    // Of queries, keys and values in one matrix a GGUF file's head_dim is by all heads.
    const bool of_queries = rest.starts_with("self_attn.q_") || rest.starts_with("self_attn.o_");
    if (!of_queries || attention.fused_qkv) {
      fields->insert("num_key_value_heads");
    }
    return;
  }
  if (rest.starts_with("self_attn.q_")) {
    fields->insert({"q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"});
  } else if (rest.starts_with("self_attn.kv_")) {
    fields->insert({"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"});
  } else {
    fields->insert("v_head_dim");
  }
}

void AddSizesOfMlp(const std::string& family, const MlpSpec& mlp, std::set<std::string>* fields) {
  const bool apart = ChoosesLayers(family) || HasSharedExperts(family);
  fields->insert(mlp.experts != 0 && apart ? "moe_intermediate_size" : "intermediate_size");
  if (mlp.experts != 0) {
    AddOfExperts(family, fields);
  }
}

void AddFields(const Checkpoint& checkpoint, const std::string& name,
               std::set<std::string>* fields) {
  const ModelSpec& spec = checkpoint.spec;
  if (IsOfQuantized(checkpoint, name)) {
    fields->insert("quantization_config");
  }
  if (name == spec.tensor_prefix + "lm_head.weight") {
    fields->insert("tie_word_embeddings");
  }
  const std::string layers = spec.tensor_prefix + "model.layers.";
  if (!name.starts_with(layers)) {
    return;
  }
  const size_t end = name.find('.', layers.size()) + 1;
  const std::string_view rest = std::string_view(name).substr(end);
  if (!HasPrefix(checkpoint, name.substr(0, end))) {
    fields->insert("num_hidden_layers");
  } else if (rest.starts_with("self_attn.") && rest.ends_with(".bias")) {
    const bool own = spec.family == "seed_oss" && rest.starts_with("self_attn.o_");
    fields->insert(own ? "attention_out_bias" : "attention_bias");
  } else if (spec.family == "glm4_moe" && rest.find("_norm.") != std::string_view::npos) {
    fields->insert("use_qk_norm");
  } else if (rest.starts_with("self_attn.q_") && spec.layers[0].attention.latent.rank != 0) {
    fields->insert("q_lora_rank");
  } else if (rest.starts_with("mlp.") || rest.starts_with("block_sparse_moe.")) {
    AddOfExperts(spec.family, fields);
    if (rest.ends_with(".bias")) {
      fields->insert("mlp_bias");
    }
  }
}

}  // namespace

std::set<std::string> FieldsBehind(const Checkpoint& checkpoint,
                                   const std::vector<std::string>& names) {
  std::set<std::string> fields;
  for (const std::string& name : names) {
    AddFields(checkpoint, name, &fields);
  }
  return fields;
}

std::set<std::string> FieldsOfSize(const Checkpoint& checkpoint, const std::string& name) {
  const ModelSpec& spec = checkpoint.spec;
  std::set<std::string> fields = {"hidden_size"};
  if (IsOfQuantized(checkpoint, name)) {
    fields.insert("quantization_config");
  }
  const std::string layers = spec.tensor_prefix + "model.layers.";
  if (!name.starts_with(layers)) {
    if (!name.starts_with(spec.tensor_prefix + "model.norm.")) {
      fields.insert("vocab_size");
    }
    return fields;
  }
  std::string_view rest = std::string_view(name).substr(layers.size());
  uint32_t index = 0;
  const size_t dot = rest.find('.');
  STRATA_CHECK(absl::SimpleAtoi(absl::string_view(rest.data(), dot), &index) &&
               index < spec.layers.size());
  rest.remove_prefix(dot + 1);
  const LayerSpec& layer = spec.layers[index];
  if (rest.starts_with("self_attn.")) {
    AddSizesOfAttention(layer.attention, rest, &fields);
  } else if (rest.starts_with("mlp.") || rest.starts_with("block_sparse_moe.")) {
    AddSizesOfMlp(spec.family, layer.mlp, &fields);
  }
  return fields;
}

}  // namespace strata
