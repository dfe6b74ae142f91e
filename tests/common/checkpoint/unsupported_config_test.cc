// What of configurations is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/status.h"
#include "tests/common/checkpoint/config_testing.h"

namespace strata {
namespace {

using nlohmann::json;
using testing::Change;
using testing::Compressed;
using testing::FamilyConfig;
using ::testing::HasSubstr;
using testing::Parse;
using testing::Small;

struct FamilyChange {
  const char* model;
  const char* field;
  json value;
  const char* says = nullptr;  // Nothing: it is read.
};

TEST(ModelConfig, RefusesByNameWhatAFamilyDoesNotRead) {
  const FamilyChange cases[] = {
      {"mistral", "attention_bias", true, "attention_bias true"},
      {"deepseek-v2", "attention_bias", true, "attention_bias true"},
      {"deepseek-v2", "kv_lora_rank", nullptr, "kv_lora_rank is missing"},
      {"deepseek-v2", "num_key_value_heads", 2, "num_key_value_heads 2 is not"},
      {"deepseek-v2", "scoring_func", "sigmoid", "scoring_func \"sigmoid\""},
      {"deepseek-v2", "topk_method", "noaux_tc", "topk_method \"noaux_tc\""},
      {"deepseek-v2", "num_experts_per_tok", nullptr, "num_experts_per_tok"},
      {"deepseek-v2", "qk_rope_head_dim", 7, "qk_rope_head_dim 7 is not even"},
      {"deepseek-v3", "rope_interleave", false, "rope_interleave false"},
      {"deepseek-v3", "moe_layer_freq", 2, "moe_layer_freq"},
      {"deepseek-v3", "n_group", 3, "n_group 3 does not divide"},
      {"deepseek-v3", "n_group", 8, "n_group 8 does not divide"},
      {"deepseek-v3", "topk_group", 1, "topk_group 1 of n_group 4"},
      {"deepseek-v3", "n_shared_experts", nullptr, "n_shared_experts is missing"},
      {"mistral", "sliding_window", 0, "sliding_window 0"},
      {"mistral", "sliding_window", "x", "sliding_window"},
      {"mistral", "num_key_value_heads", nullptr, "num_key_value_heads is missing"},
      {"mistral", "partial_rotary_factor", 0.5, "partial_rotary_factor 0.5"},
      {"mistral", "embedding_multiplier", 2, "embedding_multiplier 2"},
      {"mistral", "layer_types", json::array({"full_attention"}), "layer_types"},
      {"qwen2", "max_window_layers", -1, "max_window_layers -1"},
      {"qwen2",
       "layer_types",
       {"full_attention", "sliding_attention", "full_attention"},
       "layer_types \"sliding_attention\" of layer 1 without a sliding_window"},
      {"qwen2", "layer_types", {"full_attention", "full_attention", "x"}, "layer_types \"x\""},
      {"qwen2", "mlp_bias", true, "mlp_bias true"},
      {"qwen3", "head_dim", 7, "head_dim 7"},
      {"smollm3", "no_rope_layers", {1, 1}, "no_rope_layers is not a list of num_hidden_layers 4"},
      {"smollm3", "no_rope_layers", {1, 1, 1, 2}, "no_rope_layers holds 2"},
      {"smollm3", "sliding_window", "x", nullptr},
      {"granite", "residual_multiplier", "x", "residual_multiplier"},
      {"granite", "logits_scaling", 0, "logits_scaling 0"},
      {"granite", "embedding_multiplier", -1, "embedding_multiplier -1"},
      {"granite", "attention_multiplier", {1}, "attention_multiplier"},
      {"olmo2", "clip_qkv", 8, "clip_qkv 8"},
      {"phi3", "attention_bias", true, "attention_bias true"},
      {"phi4-mini", "partial_rotary_factor", 0.7, "partial_rotary_factor 0.7"},
      {"phi4-mini", "partial_rotary_factor", 0.5, "rope_scaling.short_factor"},
      {"phi4-mini", "original_max_position_embeddings", 1, "original_max_position_embeddings 1"},
      {"phi4-mini", "original_max_position_embeddings", nullptr,
       "original_max_position_embeddings is missing"},
      {"gemma", "hidden_act", "relu", "hidden_act \"relu\""},
      {"gemma", "hidden_activation", "gelu", "hidden_activation \"gelu\" beside hidden_act"},
      {"gemma2", "hidden_activation", "gelu", "hidden_activation \"gelu\""},
      {"gemma2", "final_logit_softcapping", -3, "final_logit_softcapping -3"},
      {"gemma2", "query_pre_attn_scalar", 0, "query_pre_attn_scalar 0"},
      {"gemma3", "use_bidirectional_attention", true, "use_bidirectional_attention true"},
      {"gemma3", "sliding_window_pattern", 0, "sliding_window_pattern 0"},
      {"gemma3", "rope_local_base_freq", "x", "rope_local_base_freq"},
      {"gemma3", "attn_logit_softcapping", 5, "attn_logit_softcapping 5"},
      {"gemma3", "_sliding_window_pattern", 2,
       "sliding_window_pattern is 6, and _sliding_window_pattern, another name of it, 2"},
      {"gemma3", "_sliding_window_pattern", 6},
      {"gemma3", "rope_parameters", {{"rope_type", "default"}}, "rope_parameters"},
      {"gpt-oss", "rope_scaling", nullptr, "rope_scaling null"},
      {"llama", "rope_scaling", {{"type", "dynamic"}}, "rope_scaling.factor is missing"},
      {"phi3", "rope_scaling", {{"type", "dynamic"}, {"factor", 2}}, "type \"dynamic\""},
      {"mistral", "layer_types", {"full_attention", "sliding_attention", "full_attention"}},
      {"phi4-mini",
       "rope_parameters",
       {{"original_max_position_embeddings", 65}, {"rope_type", "default"}},
       "rope_parameters"},
      {"gemma3", "rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}, "rope_parameters"},
      {"mixtral", "num_local_experts", 0, "num_local_experts 0"},
      {"mixtral", "num_local_experts", 100000, "num_local_experts 100000"},
      {"mixtral", "num_experts_per_tok", 5, "num_experts_per_tok 5 is above num_local_experts 4"},
      {"mixtral", "num_experts", 4},  // Under both names.
      {"mixtral", "num_experts", 5,
       "num_experts is 5, and num_local_experts, another name of it, 4"},
      {"mixtral", "n_routed_experts", 3, "num_local_experts is 4, and n_routed_experts"},
      {"deepseek-v3", "num_local_experts", 9, "num_local_experts is 9, and n_routed_experts"},
      {"gpt-oss", "num_experts", 3,
       "num_experts is 3, and num_local_experts, another name of it, 4"},
      {"gpt-oss", "experts_per_token", 1, "num_experts_per_tok is 2, and experts_per_token 1"},
      {"gpt-oss", "num_experts_per_tok", nullptr,
       "num_experts_per_tok is 4 by default, and experts_per_token 2"},
      {"gemma3", "rope_scaling", {{"type", "linear"}, {"factor", 4}}, "rope_scaling.type"},
      {"llama", "num_local_experts", 4, "num_local_experts 4"},
      {"llama", "is_causal", false, "is_causal false"},
      {"qwen2", "is_causal", true},
      {"qwen3", "per_layer_config", {{"0", {{"head_dim", 8}}}}, "per_layer_config"},
      {"qwen3", "per_layer_config", json::object()},
      {"mixtral", "n_shared_experts", 1, "n_shared_experts 1"},
      {"qwen3", "num_experts", 4, "num_experts 4"},
      {"qwen3-moe", "num_experts", "x", "num_experts"},
      {"qwen3-moe", "decoder_sparse_step", 0, "decoder_sparse_step 0"},
      {"qwen3-moe", "mlp_only_layers", 1, "mlp_only_layers 1 is not a list"},
      {"qwen3-moe", "mlp_only_layers", {0, 9}, "mlp_only_layers holds 9"},
      {"qwen3-moe", "norm_topk_prob", "x", "norm_topk_prob"},
      {"qwen3-moe", "moe_intermediate_size", -1, "moe_intermediate_size -1"},
      {"qwen3-moe", "use_sliding_window", true},  // Its window is null.
      {"gpt-oss", "swiglu_limit", 0, "swiglu_limit 0"},
      {"gpt-oss", "swiglu_alpha", 0, "swiglu_alpha 0"},
      {"gpt-oss", "swiglu_alpha", "x", "swiglu_alpha"},
      {"gpt-oss", "intermediate_size", 45},
      {"gpt-oss-mxfp4", "intermediate_size", 40, "intermediate_size 40 is not a multiple of 32"},
      {"gpt-oss-mxfp4", "hidden_size", 80, "hidden_size 80 is not a multiple of 32"},
      {"gpt-oss", "sliding_window", nullptr, "layer_types"},
      {"gpt-oss", "hidden_act", "gelu", "hidden_act"},
  };
  for (const FamilyChange& change : cases) {
    json config = FamilyConfig(change.model);
    config[change.field] = change.value;
    const auto spec = Parse(config);
    EXPECT_EQ(spec.ok(), change.says == nullptr)
        << change.model << " " << change.field << " " << spec.status();
    if (change.says != nullptr) {
      EXPECT_THAT(std::string(spec.status().message()), HasSubstr(change.says)) << change.model;
    }
  }
}

TEST(ModelConfig, RefusesByNameWhatIsNotSupported) {
  const Change cases[] = {
      {"model_type", "bert", "model_type \"bert\" is not supported yet"},
      {"model_type", "qwen2", "architecture \"LlamaForCausalLM\" of model_type \"qwen2\""},
      {"architectures",
       {"LlamaForSequenceClassification"},
       "architectures: \"LlamaForSequenceClassification\" is not supported yet"},
      {"rope_scaling",
       {{"type", "dynamic"}, {"factor", 4}, {"alpha", 1000}},
       "rope_scaling.\"alpha\" 1000 with type \"dynamic\" is not supported yet"},
      {"rope_scaling",
       {{"rope_type", "longrope"}},
       "rope_scaling type \"longrope\" is not supported yet"},
      {"rope_scaling",
       {{"rope_type", "linear"}, {"factor", 2.0}, {"beta", 1}},
       "rope_scaling.\"beta\" 1 with type \"linear\" is not supported yet"},
      {"rope_parameters",
       {{"rope_type", "proportional"}},
       "rope_parameters type \"proportional\" is not supported yet"},
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "default"}}}},
       "rope_parameters per kind of layer"},
      {"rope_parameters",
       {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
       "rope_parameters.partial_rotary_factor 0.5 is not supported yet"},
      {"rope_scaling", {{"rope_type", "default"}, {"factor", 8.0}}, "\"factor\" 8.0"},
      {"quantization_config", {{"quant_method", "hqq"}}, "quant_method \"hqq\""},
      {"quantization_config",
       {{"quant_method", "bitsandbytes"}, {"bnb_4bit_quant_storage", "bfloat16"}},
       "quantization_config.bnb_4bit_quant_storage \"bfloat16\""},
      {"quantization_config",
       {{"quant_method", "modelopt"}, {"quant_algo", "W4A8_AWQ"}},
       "quantization_config.quant_algo \"W4A8_AWQ\""},
      {"quantization_config",
       {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 32}},
       "quantization_config.group_size 32 of NVFP4"},
      {"quantization", {{"bits", 7}}, "quantization.bits 7"},
      {"quantization", {{"bits", 4}, {"group_size", 16}}, "quantization.group_size 16"},
      {"quantization", {{"bits", 4}, {"mode", "mxfp6"}}, "quantization.mode \"mxfp6\""},
      {"quantization",
       {{"bits", 4}, {"mode", "nvfp4"}, {"group_size", 32}},
       "quantization.group_size 32 of mode \"nvfp4\""},
      {"quantization",
       {{"bits", 4}, {"mode", "mxfp8"}, {"group_size", 32}},
       "quantization.bits 4 of mode \"mxfp8\""},
      {"quantization",
       {{"bits", 4}, {"lm_head", {{"bits", 9}}}},
       "quantization.\"lm_head\".bits 9"},
      {"quantization_config", {{"bits", 4}}, "quantization_config {\"bits\":4}"},
      {"quantization_config", {{"quant_method", "awq"}, {"bits", 8}}, "quantization_config.bits 8"},
      {"quantization_config",
       {{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}},
       "quantization_config.version \"gemv\""},
      {"quantization_config",
       {{"quant_method", "awq"}, {"bits", 4}, {"zero_point", false}},
       "quantization_config.zero_point false"},
      {"quantization_config",
       {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 16}},
       "quantization_config.group_size 16"},
      {"quantization_config", Compressed({{"num_bits", 9}}), "weights.num_bits 9"},
      {"quantization_config", Compressed({{"strategy", "tensor"}}), "weights.strategy \"tensor\""},
      {"quantization_config", Compressed({{"group_size", 16}}), "weights.group_size 16"},
      {"quantization_config", Compressed({{"type", "float"}}), "weights.type \"float\""},
      {"quantization_config", Compressed({{"actorder", 1}}), "weights.actorder 1"},
      {"quantization_config", Compressed({}, {{"format", "marlin-24"}}),
       "quantization_config.format \"marlin-24\""},
      {"quantization_config", Compressed({}, {{"transform_config", {{"config_groups", 1}}}}),
       "quantization_config.transform_config"},
      {"quantization_config", Compressed({}, {{"format", "mixed-precision"}}),
       "config_groups.\"group_0\" without a format of its own"},
      {"quantization_config", Compressed({{"num_bits", 3}}, {{"format", "int-quantized"}}),
       "weights.type \"int\", num_bits 3 in format \"int-quantized\""},
      {"quantization_config",
       Compressed({{"type", "float"}, {"group_size", 32}}, {{"format", "nvfp4-pack-quantized"}}),
       "weights.group_size 32 in format \"nvfp4-pack-quantized\""},
      {"quantization_config",
       Compressed({{"type", "float"}, {"group_size", 32}, {"symmetric", false}},
                  {{"format", "mxfp4-pack-quantized"}}),
       "symmetric false in format \"mxfp4-pack-quantized\""},
      {"quantization_config",
       Compressed({{"type", "float"}, {"num_bits", 8}}, {{"format", "mxfp8-quantized"}}),
       "weights.group_size 128 in format \"mxfp8-quantized\""},
      {"quantization_config", Compressed({}, {{"format", "float-quantized"}}),
       "weights.type \"int\", num_bits 4 in format \"float-quantized\""},
      {"quantization_config",
       {{"quant_method", "fp8"}, {"fmt", "e5m2"}},
       "quantization_config.fmt \"e5m2\""},
      {"quantization_config",
       {{"quant_method", "gptq"}, {"bits", 3}},
       "quantization_config.bits 3"},
      {"quantization_config",
       {{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}},
       "quantization_config.checkpoint_format \"marlin\""},
      {"quantization_config",
       {{"quant_method", "gptq"}, {"bits", 4}, {"is_marlin_format", true}},
       "quantization_config.is_marlin_format true"},
      {"quantization_config",
       {{"quant_method", "gptq"}, {"bits", 4}, {"dynamic", {{"+:.*down", {{"bits", 8}}}}}},
       "quantization_config.dynamic.\"+:.*down\""},
      {"quantization", {{"bits", 4}, {"group_size", 48}}, "quantization.group_size 48"},
      {"sliding_window", 4096, "sliding_window 4096 is not supported yet"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor 0.5 is not supported yet"},
      {"hidden_act", "gelu", "hidden_act \"gelu\" is not supported yet"},
      {"hidden_activation", "gelu_pytorch_tanh", "hidden_activation"},
      {"attn_logit_softcapping", 50.0, "attn_logit_softcapping 50.0 is not supported yet"},
      {"final_logit_softcapping", 30.0, "final_logit_softcapping"},
      {"num_local_experts", 8, "num_local_experts 8 is not supported yet"},
      {"embedding_multiplier", 12.0, "embedding_multiplier"},
      {"layer_types", {"full_attention", "sliding_attention"}, "layer_types \"sliding_attention\""},
      {"text_config", {{"hidden_size", 8}}, "text_config"},
      {"auto_map", {{"AutoModelForCausalLM", "x.Y"}}, "auto_map \"AutoModelForCausalLM\""},
      {"auto_map", {{"AutoModel", "x.MyModel"}}, "auto_map \"AutoModel\""},
      {"use_qk_norm", true, "use_qk_norm true is not supported yet"},
  };
  for (const Change& change : cases) {
    json config = Small();
    config[change.field] = change.value;
    const auto spec = Parse(config);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kUnimplemented)
        << change.field << ": " << spec.status();
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(change.says));
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("is not supported yet"));
    EXPECT_EQ(ReasonOf(spec.status()), "UNSUPPORTED_MODEL");
  }
}

}  // namespace
}  // namespace strata
