#include "tests/mutations/field_defaults.h"

namespace strata::testing {
namespace {

// "" is of all families that have no own.
struct FieldDefault {
  std::string_view family;
  std::string_view field;
  double value;
};
constexpr FieldDefault kDefaults[] = {
    {"", "rms_norm_eps", 1e-6},
    {"phi3", "rms_norm_eps", 1e-5},
    {"olmo2", "rms_norm_eps", 1e-5},
    {"mixtral", "rms_norm_eps", 1e-5},
    {"gpt_oss", "rms_norm_eps", 1e-5},
    {"qwen2_5_vl_text", "rms_norm_eps", 1e-5},
    {"qwen2_vl_text", "rms_norm_eps", 1e-5},
    {"ministral3", "rms_norm_eps", 1e-5},
    {"olmo3", "rms_norm_eps", 1e-5},
    {"glm4", "rms_norm_eps", 1.5625e-7},
    {"glm", "rms_norm_eps", 1.5625e-7},
    {"glm4_moe", "rms_norm_eps", 1e-5},
    {"glm4_moe_lite", "rms_norm_eps", 1e-5},
    {"", "rope_theta", 1e4},
    {"smollm3", "rope_theta", 2e6},
    {"gemma3_text", "rope_theta", 1e6},
    {"mixtral", "rope_theta", 1e6},
    {"gpt_oss", "rope_theta", 1.5e5},
    {"qwen2_5_vl_text", "rope_theta", 1e6},
    {"qwen2_vl_text", "rope_theta", 1e6},
    {"qwen3_vl_text", "rope_theta", 5e5},
    {"qwen3_vl_moe_text", "rope_theta", 5e5},
    {"olmo3", "rope_theta", 5e5},
    {"minimax_m2", "rope_theta", 5e6},
    {"", "rope_local_base_freq", 1e4},
    {"", "tie_word_embeddings", 0},
    {"smollm3", "tie_word_embeddings", 1},
    {"gemma", "tie_word_embeddings", 1},
    {"gemma2", "tie_word_embeddings", 1},
    {"gemma3_text", "tie_word_embeddings", 1},
    {"", "max_position_embeddings", 2048},
    {"mistral", "max_position_embeddings", 131072},
    {"qwen2", "max_position_embeddings", 32768},
    {"qwen3", "max_position_embeddings", 32768},
    {"minicpmo", "max_position_embeddings", 32768},
    {"smollm3", "max_position_embeddings", 32768},
    {"phi3", "max_position_embeddings", 4096},
    {"gemma", "max_position_embeddings", 8192},
    {"gemma2", "max_position_embeddings", 8192},
    {"gemma3_text", "max_position_embeddings", 131072},
    {"mixtral", "max_position_embeddings", 131072},
    {"qwen3_moe", "max_position_embeddings", 32768},
    {"deepseek_v3", "max_position_embeddings", 4096},
    {"gpt_oss", "max_position_embeddings", 131072},
    {"qwen2_5_vl_text", "max_position_embeddings", 32768},
    {"qwen2_vl_text", "max_position_embeddings", 32768},
    {"qwen3_vl_text", "max_position_embeddings", 128000},
    {"qwen3_vl_moe_text", "max_position_embeddings", 128000},
    {"ministral3", "max_position_embeddings", 262144},
    {"seed_oss", "max_position_embeddings", 524288},
    {"glm4", "max_position_embeddings", 131072},
    {"glm", "max_position_embeddings", 131072},
    {"glm4_moe", "max_position_embeddings", 131072},
    {"glm4_moe_lite", "max_position_embeddings", 202752},
    {"minimax_m2", "max_position_embeddings", 196608},
    {"kimi_k2", "max_position_embeddings", 4096},
    {"", "sliding_window", 4096},
    {"phi3", "sliding_window", 0},
    {"mixtral", "sliding_window", 0},
    {"gpt_oss", "sliding_window", 128},
    {"ministral3", "sliding_window", 0},
    {"", "max_window_layers", 28},
    {"qwen2_5_vl_text", "max_window_layers", 80},
    {"qwen2_vl_text", "max_window_layers", 80},
    {"", "sliding_window_pattern", 6},
    {"gemma", "num_attention_heads", 16},
    {"gemma2", "num_attention_heads", 8},
    {"gemma3_text", "num_attention_heads", 8},
    {"gpt_oss", "num_attention_heads", 64},
    {"gemma", "num_key_value_heads", 16},
    {"gemma2", "num_key_value_heads", 4},
    {"gemma3_text", "num_key_value_heads", 4},
    {"gpt_oss", "num_key_value_heads", 8},
    {"seed_oss", "num_key_value_heads", 8},
    {"glm4", "num_key_value_heads", 2},
    {"glm", "num_key_value_heads", 2},
    {"glm4_moe", "num_key_value_heads", 8},
    {"minimax_m2", "num_key_value_heads", 8},
    {"qwen3", "head_dim", 128},
    {"gemma", "head_dim", 256},
    {"gemma2", "head_dim", 256},
    {"gemma3_text", "head_dim", 256},
    {"gpt_oss", "head_dim", 64},
    {"qwen3_vl_text", "head_dim", 128},
    {"ministral3", "head_dim", 128},
    {"seed_oss", "head_dim", 128},
    {"glm4", "head_dim", 128},
    {"glm", "head_dim", 128},
    {"minimax_m2", "head_dim", 128},
    {"", "query_pre_attn_scalar", 256},
    {"gemma2", "attn_logit_softcapping", 50},
    {"gemma2", "final_logit_softcapping", 30},
    {"", "attention_multiplier", 1},
    {"", "embedding_multiplier", 1},
    {"", "residual_multiplier", 1},
    {"", "logits_scaling", 1},
    {"", "no_rope_layer_interval", 4},
    {"mixtral", "num_experts_per_tok", 2},
    {"qwen3_moe", "num_experts_per_tok", 8},
    {"deepseek_v3", "num_experts_per_tok", 8},
    {"gpt_oss", "num_experts_per_tok", 4},
    {"qwen3_vl_moe_text", "num_experts_per_tok", 4},
    {"kimi_k2", "num_experts_per_tok", 8},
    {"glm4_moe", "num_experts_per_tok", 8},
    {"glm4_moe_lite", "num_experts_per_tok", 4},
    {"minimax_m2", "num_experts_per_tok", 8},
    {"deepseek_v3", "norm_topk_prob", 1},
    {"kimi_k2", "norm_topk_prob", 1},
    {"glm4_moe", "norm_topk_prob", 1},
    {"glm4_moe_lite", "norm_topk_prob", 1},
    {"gpt_oss", "swiglu_limit", 7},
    {"gpt_oss", "swiglu_alpha", 1.702},
};
const FieldDefault* FindDefault(std::string_view family, std::string_view field) {
  const FieldDefault* of_all = nullptr;
  for (const FieldDefault& one : kDefaults) {
    if (one.field == field && one.family == family) return &one;
    if (one.field == field && one.family.empty()) of_all = &one;
  }
  return of_all;
}

}  // namespace

bool HasDefault(std::string_view family, std::string_view field) {
  return FindDefault(family, field) != nullptr;
}

double DefaultOf(std::string_view family, std::string_view field) {
  const FieldDefault* found = FindDefault(family, field);
  return found == nullptr ? 0 : found->value;
}

}  // namespace strata::testing
