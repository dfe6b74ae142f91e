#include "tests/mutations/gguf_names.h"

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/checkpoint/json_reader.h"
#include "tests/mutations/gguf_keys.h"

namespace strata::testing {

std::vector<std::string> CheckpointNames(const std::string& tensor) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"attn_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"},
      {"ffn_norm", "pre_feedforward_layernorm"},
      {"post_attention_norm", "post_self_attn_layernorm"},
      {"post_ffw_norm", "post_mlp_layernorm"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_up", "mlp.gate_up_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"attn_q_a", "self_attn.q_a_proj"},
      {"attn_q_a_norm", "self_attn.q_a_layernorm"},
      {"attn_q_b", "self_attn.q_b_proj"},
      {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
      {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
      {"attn_kv_b", "self_attn.kv_b_proj"},
      {"attn_k_b", "self_attn.k_b_proj"},
      {"attn_v_b", "self_attn.v_b_proj"},
      // Without one of the two the other's name is of what stands in place of both.
      {"attn_k_b", "self_attn.kv_b_proj"},
      {"attn_v_b", "self_attn.kv_b_proj"},
      {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
      {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
      {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
      {"ffn_gate_inp", "mlp.gate"},
      {"ffn_gate_inp", "mlp.router"},
      {"ffn_gate_inp", "block_sparse_moe.gate"},
      {"ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"},
      {"ffn_gate_exps", "mlp.switch_mlp.gate_proj"},
      {"ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"},
      {"ffn_up_exps", "mlp.switch_mlp.up_proj"},
      {"ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"},
      {"ffn_down_exps", "mlp.switch_mlp.down_proj"}};
  // One expert's, as older files have them.
  constexpr std::pair<const char*, const char*> kOfExperts[] = {
      {"ffn_gate.", "w1"}, {"ffn_down.", "w2"}, {"ffn_up.", "w3"}};
  const size_t kind = tensor.rfind('.');
  const size_t begin = tensor.starts_with("blk.") ? tensor.find('.', 4) + 1 : 0;
  std::vector<std::string> names;
  if (kind == tensor.npos || kind < begin) {
    return names;
  }
  const std::string module = tensor.substr(begin, kind - begin);
  const std::string prefix = begin == 0 ? "" : "model.layers." + tensor.substr(4, begin - 4);
  for (const auto& [gguf, name] : kNames) {
    if (module == gguf) names.push_back(prefix + name + tensor.substr(kind));
  }
  if (module == "exp_probs_b") {
    names.push_back(prefix + "mlp.gate.e_score_correction_bias");
    names.push_back(prefix + "block_sparse_moe.e_score_correction_bias");
  }
  if (module == "attn_sinks") names.push_back(prefix + "self_attn.sinks");
  for (const auto& [gguf, name] : kOfExperts) {
    if (module.starts_with(gguf)) {
      names.push_back(prefix + "block_sparse_moe.experts." +
                      module.substr(std::string_view(gguf).size()) + "." + name +
                      tensor.substr(kind));
    }
  }
  return names;
}

namespace {

// Whether what is behind the field is read from another place.
bool MovesTheRest(const Field& field, const std::string& valid_file, const std::string& file) {
  if (field.what == "type" || field.what == "type of the list") {
    const auto size = [&](const std::string& of) {
      uint32_t type = 0;
      std::memcpy(&type, of.data() + field.at, sizeof(type));
      return type == kGgufString || type == kGgufList ? SIZE_MAX : GgufSizeOf(type);
    };
    return size(file) != 0 && size(file) != size(valid_file);
  }
  return field.owner.empty() || field.what == "rank" || field.what == "count of the list" ||
         field.what.starts_with("length");
}

}  // namespace

std::vector<std::string> NamesOf(const Field& field, const std::string& valid_file,
                                 const std::string& file) {
  constexpr std::pair<const char*, const char*> kConfig[] = {
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"block_count", ".nextn"},
      {"nextn_predict_layers", ".nextn"},
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
      {"rope.scaling.factor", "factor"},
      {"rope.scaling.attn_factor", "attention_factor"},
      {"rope.scaling.original_context_length", "original_max_position_embeddings"},
      {"rope.scaling.yarn_attn_factor", "attention_factor"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
      {"attention.sliding_window", "sliding_window"},
      {"attention.key_length", "qk_nope_head_dim"},
      {"attention.key_length_mla", "qk_nope_head_dim"},
      {"attention.value_length", "v_head_dim"},
      {"attention.value_length_mla", "v_head_dim"},
      {"attention.key_length_mla", "attention.head_count_kv"},
      {"attention.kv_lora_rank", "kv_lora_rank"},
      {"attention.q_lora_rank", "q_lora_rank"},
      {"rope.dimension_count", "qk_rope_head_dim"},
      {"yarn_log_multiplier", "mscale"},
      {"attention.temperature_scale", "llama_4_scaling_beta"},
      {"rope.dimension_count", "partial_rotary_factor"},
      {"expert_shared_count", "n_shared_experts"},
      {"expert_group_count", "n_group"},
      {"expert_group_count", "topk_group"},
      {"expert_group_used_count", "topk_group"},
      {"leading_dense_block_count", "first_k_dense_replace"},
      {"expert_weights_scale", "routed_scaling_factor"},
      // It says which of DeepSeek's the file is, of which one has corrections.
      {"expert_gating_func", "exp_probs_b"},
      {"expert_gating_func", "e_score_correction_bias"},
      {"expert_gating_func", "expert_weights_norm"},
      {"expert_feed_forward_length", "moe_intermediate_size"},
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
  if (field.what == "name") {
    const std::string now = file.substr(field.at, field.bytes);
    names.push_back(Quoted(now));
    for (const std::string& name : CheckpointNames(now)) names.push_back(name);
  }
  if (MovesTheRest(field, valid_file, file)) {
    names.insert(names.end(),
                 {"key \"", "tensor \"", "a key", "a tensor's name", "tensors are missing",
                  "the version", "counts", "begin with GGUF", "is of version", "is big-endian"});
  }
  return names;
}

}  // namespace strata::testing
