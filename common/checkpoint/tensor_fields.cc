#include "common/checkpoint/tensor_fields.h"

#include <algorithm>
#include <string_view>

namespace strata {
namespace {

// What is beside or in place of the weights of a matrix that is stored quantized.
constexpr std::string_view kQuantized[] = {".qweight",      ".weight_packed",    ".scales",
                                           ".weight_scale", ".weight_scale_inv", "_blocks"};

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

void AddOfExperts(const std::string& family, std::set<std::string>* fields) {
  if (family == "qwen3_moe") {
    fields->insert({"num_experts", "decoder_sparse_step", "mlp_only_layers"});
  } else if (family.starts_with("deepseek")) {
    fields->insert({"n_routed_experts", "n_shared_experts", "first_k_dense_replace"});
  } else if (family == "mixtral" || family == "gpt_oss") {
    fields->insert("num_local_experts");
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
    fields->insert("attention_bias");
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

}  // namespace strata
