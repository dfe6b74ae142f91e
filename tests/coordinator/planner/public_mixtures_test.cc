// Sizes on paper of public mixtures of experts, as public_models_test.cc has those of dense models:
// what the planner counts, to the byte, against arithmetic on the published shapes. Layers differ,
// and some checkpoints are stored in formats that workers keep otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/planner/planner.h"
#include "coordinator/registry/manifest.h"
#include "coordinator/service/request/model_runtime.h"
#include "tests/coordinator/planner/public_model.h"

namespace strata {
namespace {

// Some weights: how many, and their bytes in the files and in a worker's memory.
struct Weights {
  uint64_t count = 0;
  uint64_t stored = 0;
  uint64_t kept = 0;
};
constexpr Weights operator+(Weights a, Weights b) {
  return {a.count + b.count, a.stored + b.stored, a.kept + b.kept};
}
constexpr Weights operator*(uint64_t n, Weights w) {
  return {n * w.count, n * w.stored, n * w.kept};
}

constexpr Weights Bf16(uint64_t count) { return {count, 2 * count, 2 * count}; }
constexpr Weights F32(uint64_t count) { return {count, 4 * count, 4 * count}; }
// 4 bits, and for 32 of them an exponent of a byte; kept so, with room for the exponents of whole
// 256 inputs.
constexpr Weights Mxfp4(uint64_t outputs, uint64_t inputs) {
  const uint64_t count = outputs * inputs;
  return {count, count / 32 * 17, count / 2 + outputs * ((inputs + 255) / 256) * 8};
}
// A byte each, and a float32 scale for each tile of 128 x 128; kept as float32.
constexpr uint64_t Tiles(uint64_t n) { return (n + 127) / 128; }
constexpr Weights Fp8(uint64_t outputs, uint64_t inputs) {
  const uint64_t count = outputs * inputs;
  return {count, count + Tiles(outputs) * Tiles(inputs) * 4, 4 * count};
}

// 4 bits, and in groups of 128 inputs a zero and a float16 scale for each output; kept with a
// float32 scale and bias. GPTQ says besides which group each input is of.
constexpr Weights Awq(uint64_t outputs, uint64_t inputs) {
  const uint64_t count = outputs * inputs;
  return {count, count / 2 + count / 128 * 5 / 2, count / 2 + count / 128 * 8};
}
constexpr Weights Gptq(uint64_t outputs, uint64_t inputs) {
  return Awq(outputs, inputs) + Weights{0, inputs * 4, 0};
}
// Of the projections of layers, but for routers.
bool IsCode(const std::string& tensor) {
  return tensor.find(".mlp.gate.") == std::string::npos &&
         tensor.find("layers.") != std::string::npos &&
         (tensor.ends_with(".qweight") || tensor.ends_with(".qzeros") ||
          tensor.ends_with(".scales"));
}

struct Mixture {
  const char* name;
  std::string config;
  bool (*has)(const std::string& tensor);  // That formats other than bfloat16 have there.
  uint64_t parameters;                     // As published.
  uint64_t stored;                         // Bytes of all tensors, as published; 0: not told.
  std::vector<Weights> layers;
  Weights expert;  // One of those that tokens are routed to,
  uint64_t idle;   // and how many of them a token does not read.
  Weights embedding;
  Weights head;  // With the last norm.
  uint64_t kv_of_layer;
  uint32_t window = 0;  // As PublicSizes has them.
  uint32_t full_every = 0;
};

// Layers all alike: 128 experts, of which a token has 8; norms of q's and k's heads.
Mixture Qwen3() {
  constexpr uint64_t kHidden = 4096, kFfn = 1536, kVocab = 151936, kExperts = 128;
  constexpr uint64_t kQueries = 64 * 128, kKeys = 4 * 128;
  constexpr Weights kAttention = Bf16(2 * kHidden * kQueries + 2 * kHidden * kKeys) + Bf16(2 * 128);
  constexpr Weights kExpert = Bf16(3 * kHidden * kFfn);
  constexpr Weights kLayer =
      kAttention + kExperts * kExpert + Bf16(kExperts * kHidden) + Bf16(2 * kHidden);
  return {.name = "Qwen3-235B-A22B",
          .config = R"({"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe",
              "attention_bias":false,"bos_token_id":151643,"eos_token_id":151645,
              "decoder_sparse_step":1,"head_dim":128,"hidden_act":"silu","hidden_size":4096,
              "intermediate_size":12288,"max_position_embeddings":40960,"max_window_layers":94,
              "mlp_only_layers":[],"moe_intermediate_size":1536,"norm_topk_prob":true,
              "num_attention_heads":64,"num_experts":128,"num_experts_per_tok":8,
              "num_hidden_layers":94,"num_key_value_heads":4,"rms_norm_eps":1e-06,
              "rope_scaling":null,"rope_theta":1000000.0,"sliding_window":null,
              "tie_word_embeddings":false,"torch_dtype":"bfloat16","use_sliding_window":false,
              "vocab_size":151936})",
          .has = nullptr,
          .parameters = 235'093'634'560,
          .stored = 470'187'269'120,
          .layers = std::vector<Weights>(94, kLayer),
          .expert = kExpert,
          .idle = kExperts - 8,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          .kv_of_layer = 2 * kKeys * 2};
}

// 30.5B weights as their authors publish them in 4 bits: all projections but the routers.
Mixture Qwen3Gptq() {
  constexpr uint64_t kHidden = 2048, kFfn = 768, kVocab = 151936, kExperts = 128;
  constexpr uint64_t kQueries = 32 * 128, kKeys = 4 * 128;
  constexpr Weights kAttention =
      Gptq(kQueries, kHidden) + 2 * Gptq(kKeys, kHidden) + Gptq(kHidden, kQueries) + Bf16(2 * 128);
  constexpr Weights kExpert = 2 * Gptq(kFfn, kHidden) + Gptq(kHidden, kFfn);
  constexpr Weights kLayer =
      kAttention + kExperts * kExpert + Bf16(kExperts * kHidden) + Bf16(2 * kHidden);
  return {.name = "Qwen3-30B-A3B-GPTQ-Int4",
          .config = R"({"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe",
              "attention_bias":false,"bos_token_id":151643,"eos_token_id":151645,
              "decoder_sparse_step":1,"head_dim":128,"hidden_act":"silu","hidden_size":2048,
              "intermediate_size":6144,"max_position_embeddings":40960,"max_window_layers":48,
              "mlp_only_layers":[],"moe_intermediate_size":768,"norm_topk_prob":true,
              "num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,
              "num_hidden_layers":48,"num_key_value_heads":4,"quantization_config":{"bits":4,
              "checkpoint_format":"gptq","desc_act":false,"group_size":128,"lm_head":false,
              "pack_dtype":"int32","quant_method":"gptq","sym":true},"rms_norm_eps":1e-06,
              "rope_scaling":null,"rope_theta":1000000.0,"sliding_window":null,
              "tie_word_embeddings":false,"use_sliding_window":false,"vocab_size":151936})",
          .has =
              [](const std::string& tensor) {
                return IsCode(tensor) || (tensor.ends_with(".g_idx") &&
                                          tensor.find(".mlp.gate.") == std::string::npos);
              },
          .parameters = 30'532'122'624,
          .stored = 0,
          .layers = std::vector<Weights>(48, kLayer),
          .expert = kExpert,
          .idle = kExperts - 8,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          .kv_of_layer = 2 * kKeys * 2};
}

// The instructed one; the other has a vocabulary of 32000. 8 experts, of which a token has 2.
Mixture Mixtral() {
  constexpr uint64_t kHidden = 6144, kFfn = 16384, kVocab = 32768, kExperts = 8;
  constexpr uint64_t kQueries = 48 * 128, kKeys = 8 * 128;
  constexpr Weights kAttention = Bf16(2 * kHidden * kQueries + 2 * kHidden * kKeys);
  constexpr Weights kExpert = Bf16(3 * kHidden * kFfn);
  constexpr Weights kLayer =
      kAttention + kExperts * kExpert + Bf16(kExperts * kHidden) + Bf16(2 * kHidden);
  return {.name = "Mixtral-8x22B-Instruct",
          .config = R"({"architectures":["MixtralForCausalLM"],"model_type":"mixtral",
              "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":6144,
              "intermediate_size":16384,"max_position_embeddings":65536,
              "num_attention_heads":48,"num_experts_per_tok":2,"num_hidden_layers":56,
              "num_key_value_heads":8,"num_local_experts":8,"rms_norm_eps":1e-05,
              "rope_theta":1000000.0,"sliding_window":null,"tie_word_embeddings":false,
              "torch_dtype":"bfloat16","vocab_size":32768})",
          .has = nullptr,
          .parameters = 140'630'071'296,
          .stored = 2 * 140'630'071'296,
          .layers = std::vector<Weights>(56, kLayer),
          .expert = kExpert,
          .idle = kExperts - 2,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          .kv_of_layer = 2 * kKeys * 2};
}

// Biases everywhere, a sink for each head, every second layer with a window of 128; experts in
// MXFP4, all else in bfloat16.
Mixture GptOss() {
  constexpr uint64_t kHidden = 2880, kFfn = 2880, kVocab = 201088, kExperts = 128;
  constexpr uint64_t kQueries = 64 * 64, kKeys = 8 * 64;
  constexpr Weights kAttention = Bf16(2 * kHidden * kQueries + 2 * kHidden * kKeys) +
                                 Bf16(kQueries + 2 * kKeys + kHidden) + Bf16(64);
  constexpr Weights kExpert = 3 * Mxfp4(kHidden, kFfn) + Bf16(2 * kFfn + kHidden);
  constexpr Weights kLayer =
      kAttention + kExperts * kExpert + Bf16(kExperts * (kHidden + 1)) + Bf16(2 * kHidden);
  return {.name = "gpt-oss-120b",
          .config = R"({"architectures":["GptOssForCausalLM"],"model_type":"gpt_oss",
              "attention_bias":true,"eos_token_id":200002,"experts_per_token":4,"head_dim":64,
              "hidden_act":"silu","hidden_size":2880,"initial_context_length":4096,
              "intermediate_size":2880,"max_position_embeddings":131072,
              "num_attention_heads":64,"num_experts_per_tok":4,"num_hidden_layers":36,
              "num_key_value_heads":8,"num_local_experts":128,"pad_token_id":199999,
              "quantization_config":{"modules_to_not_convert":["model.layers.*.self_attn",
              "model.layers.*.mlp.router","model.embed_tokens","lm_head"],
              "quant_method":"mxfp4"},"rms_norm_eps":1e-05,"rope_scaling":{"beta_fast":32.0,
              "beta_slow":1.0,"factor":32.0,"original_max_position_embeddings":4096,
              "rope_type":"yarn","truncate":false},"rope_theta":150000,"sliding_window":128,
              "swiglu_limit":7.0,"tie_word_embeddings":false,"vocab_size":201088})",
          .has = [](const std::string& tensor) { return tensor.ends_with("_blocks"); },
          .parameters = 116'829'156'672,
          .stored = 65'248'815'744,
          .layers = std::vector<Weights>(36, kLayer),
          .expert = kExpert,
          .idle = kExperts - 4,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          .kv_of_layer = 2 * kKeys * 2,
          .window = 128,
          .full_every = 2};
}

// Multi-head latent attention; the first 3 of 61 layers dense, the others with 256 experts, of
// which a token has 8, and one that all tokens have. Projections but routers in the format of
// `matrix`, of which `latent` is what latent vectors become keys and values by. The layer that
// predicts a further token (the 62nd in the files) is not loaded.
constexpr uint64_t kLatentOutputs = uint64_t{128} * (128 + 128);
constexpr uint64_t kLatentRank = 512;

Mixture DeepSeekV3In(const char* name, const std::string& quantization,
                     Weights (*matrix)(uint64_t outputs, uint64_t inputs), Weights latent,
                     bool (*has)(const std::string& tensor)) {
  constexpr uint64_t kHidden = 7168, kFfn = 2048, kVocab = 129280, kExperts = 256;
  constexpr uint64_t kHeads = 128, kNope = 128, kRope = 64, kValue = 128;
  constexpr uint64_t kQueryRank = 1536;
  const Weights attention = matrix(kQueryRank, kHidden) + Bf16(kQueryRank) +
                            matrix(kHeads * (kNope + kRope), kQueryRank) +
                            matrix(kLatentRank + kRope, kHidden) + Bf16(kLatentRank) + latent +
                            matrix(kHidden, kHeads * kValue);
  const Weights norms = Bf16(2 * kHidden);
  const Weights dense = attention + norms + 2 * matrix(18432, kHidden) + matrix(kHidden, 18432);
  const Weights expert = 2 * matrix(kFfn, kHidden) + matrix(kHidden, kFfn);
  const Weights router = Bf16(kExperts * kHidden) + F32(kExperts);
  std::vector<Weights> layers(3, dense);
  layers.resize(61, attention + norms + (kExperts + 1) * expert + router);
  return {.name = name,
          .config = R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3",
              "attention_bias":false,"auto_map":{
              "AutoConfig":"configuration_deepseek.DeepseekV3Config",
              "AutoModel":"modeling_deepseek.DeepseekV3Model",
              "AutoModelForCausalLM":"modeling_deepseek.DeepseekV3ForCausalLM"},
              "bos_token_id":0,"eos_token_id":1,"ep_size":1,"first_k_dense_replace":3,
              "hidden_act":"silu","hidden_size":7168,"intermediate_size":18432,
              "kv_lora_rank":512,"max_position_embeddings":163840,"moe_intermediate_size":2048,
              "moe_layer_freq":1,"n_group":8,"n_routed_experts":256,"n_shared_experts":1,
              "norm_topk_prob":true,"num_attention_heads":128,"num_experts_per_tok":8,
              "num_hidden_layers":61,"num_key_value_heads":128,"num_nextn_predict_layers":1,
              "q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
              "quantization_config":)" +
                    quantization + R"(,"rms_norm_eps":1e-06,
              "rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":1.0,
              "mscale_all_dim":1.0,"original_max_position_embeddings":4096,"type":"yarn"},
              "rope_theta":10000,"routed_scaling_factor":2.5,"scoring_func":"sigmoid",
              "tie_word_embeddings":false,"topk_group":4,"topk_method":"noaux_tc",
              "torch_dtype":"bfloat16","v_head_dim":128,"vocab_size":129280})",
          .has = has,
          .parameters = 671'026'419'200,
          .stored = 0,  // That of the files includes the 62nd layer.
          .layers = std::move(layers),
          .expert = expert,
          .idle = kExperts - 8,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          // The latent vector, and the key that rotates.
          .kv_of_layer = (kLatentRank + kRope) * 2};
}

// In 8-bit floats, as it is published.
Mixture DeepSeekV3() {
  return DeepSeekV3In("DeepSeek-V3",
                      R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",
          "weight_block_size":[128,128]})",
                      Fp8, Fp8(kLatentOutputs, kLatentRank), [](const std::string& tensor) {
                        return tensor.find("layers.") != std::string::npos &&
                               tensor.find(".mlp.gate.") == std::string::npos &&
                               (tensor.ends_with("_proj.weight") ||
                                tensor.ends_with("_with_mqa.weight") ||
                                tensor.ends_with(".weight_scale_inv")) &&
                               tensor.find("switch_mlp") == std::string::npos;
                      });
}

// By AutoAWQ, in 4 bits; used in floats is what keys and values are made by.
Mixture DeepSeekV3Awq() {
  Weights latent = Awq(kLatentOutputs, kLatentRank);
  latent.kept = 4 * latent.count;
  return DeepSeekV3In("DeepSeek-V3-AWQ",
                      R"({"bits":4,"group_size":128,"modules_to_not_convert":null,
                          "quant_method":"awq","version":"gemm","zero_point":true})",
                      Awq, latent, IsCode);
}

// DeepSeek-V3's layers, the first alone dense; as large as published, in bfloat16.
Mixture KimiK2() {
  constexpr uint64_t kHidden = 7168, kFfn = 2048, kVocab = 163840, kExperts = 384;
  constexpr uint64_t kHeads = 64, kNope = 128, kRope = 64, kValue = 128, kQueryRank = 1536;
  constexpr uint64_t kOutputs = kHeads * (kNope + kValue);
  const Weights latent = Bf16(kOutputs * kLatentRank);
  const Weights attention = Bf16(kQueryRank * kHidden) + Bf16(kQueryRank) +
                            Bf16(kHeads * (kNope + kRope) * kQueryRank) +
                            Bf16((kLatentRank + kRope) * kHidden) + Bf16(kLatentRank) + latent +
                            Bf16(kHidden * kHeads * kValue) + Bf16(2 * kHidden);
  const Weights expert = Bf16(3 * kFfn * kHidden);
  std::vector<Weights> layers(1, attention + Bf16(3 * 18432 * kHidden));
  layers.resize(61, attention + (kExperts + 1) * expert + Bf16(kExperts * kHidden) + F32(kExperts));
  return {.name = "Kimi-K2",
          .config = R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"kimi_k2",
              "attention_bias":false,"auto_map":{
              "AutoConfig":"configuration_deepseek.DeepseekV3Config",
              "AutoModel":"modeling_deepseek.DeepseekV3Model",
              "AutoModelForCausalLM":"modeling_deepseek.DeepseekV3ForCausalLM"},
              "bos_token_id":163584,"eos_token_id":163585,"first_k_dense_replace":1,
              "hidden_act":"silu","hidden_size":7168,"intermediate_size":18432,
              "kv_lora_rank":512,"max_position_embeddings":131072,"moe_intermediate_size":2048,
              "moe_layer_freq":1,"n_group":1,"n_routed_experts":384,"n_shared_experts":1,
              "norm_topk_prob":true,"num_attention_heads":64,"num_experts_per_tok":8,
              "num_hidden_layers":61,"num_key_value_heads":64,"num_nextn_predict_layers":0,
              "q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
              "rms_norm_eps":1e-06,"rope_scaling":{"beta_fast":1.0,"beta_slow":1.0,
              "factor":32.0,"mscale":1.0,"mscale_all_dim":1.0,
              "original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":50000.0,
              "routed_scaling_factor":2.827,"scoring_func":"sigmoid",
              "tie_word_embeddings":false,"topk_group":1,"topk_method":"noaux_tc",
              "v_head_dim":128,"vocab_size":163840})",
          .has = nullptr,
          .parameters = 1'026'408'232'448,
          .stored = 0,
          .layers = std::move(layers),
          .expert = expert,
          .idle = kExperts - 8,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          .kv_of_layer = (kLatentRank + kRope) * 2};
}

// Biases of q, k and v; a shared expert; the layer that guesses further tokens is left out of
// 110,468,824,832 parameters: a mixture with an embedding, a head, a projection and three norms.
Mixture Glm45Air() {
  constexpr uint64_t kHidden = 4096, kFfn = 1408, kVocab = 151552, kExperts = 128;
  constexpr uint64_t kQueries = 96 * 128, kKeys = 8 * 128;
  constexpr Weights kAttention = Bf16(2 * kHidden * kQueries + 2 * kHidden * kKeys) +
                                 Bf16(kQueries + 2 * kKeys) + Bf16(2 * kHidden);
  constexpr Weights kExpert = Bf16(3 * kFfn * kHidden);
  constexpr Weights kMixture =
      kAttention + (kExperts + 1) * kExpert + Bf16(kExperts * kHidden) + F32(kExperts);
  constexpr uint64_t kGuessing =
      kMixture.count + 2 * kVocab * kHidden + 2 * kHidden * kHidden + 3 * kHidden;
  std::vector<Weights> layers(1, kAttention + Bf16(3 * 10944 * kHidden));
  layers.resize(46, kMixture);
  return {.name = "GLM-4.5-Air",
          .config = R"({"architectures":["Glm4MoeForCausalLM"],"model_type":"glm4_moe",
              "attention_bias":true,"eos_token_id":[151329,151336,151338],
              "first_k_dense_replace":1,"head_dim":128,"hidden_act":"silu","hidden_size":4096,
              "intermediate_size":10944,"max_position_embeddings":131072,
              "moe_intermediate_size":1408,"n_group":1,"n_routed_experts":128,
              "n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":96,
              "num_experts_per_tok":8,"num_hidden_layers":46,"num_key_value_heads":8,
              "num_nextn_predict_layers":1,"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,
              "rope_scaling":null,"rope_theta":1000000,"routed_scaling_factor":1.0,
              "tie_word_embeddings":false,"topk_group":1,"use_qk_norm":false,
              "vocab_size":151552})",
          .has = nullptr,
          .parameters = 110'468'824'832 - kGuessing,
          .stored = 0,
          .layers = std::move(layers),
          .expert = kExpert,
          .idle = kExperts - 8,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          .kv_of_layer = 2 * kKeys * 2};
}

// Every layer a mixture; norms of q and k over all their heads; in bfloat16.
Mixture MiniMaxM2() {
  constexpr uint64_t kHidden = 3072, kFfn = 1536, kVocab = 200064, kExperts = 256;
  constexpr uint64_t kQueries = 48 * 128, kKeys = 8 * 128;
  constexpr Weights kExpert = Bf16(3 * kFfn * kHidden);
  constexpr Weights kLayer = Bf16(2 * kHidden * kQueries + 2 * kHidden * kKeys) +
                             Bf16(kQueries + kKeys) + Bf16(2 * kHidden) + kExperts * kExpert +
                             Bf16(kExperts * kHidden) + F32(kExperts);
  return {.name = "MiniMax-M2",
          .config = R"({"architectures":["MiniMaxM2ForCausalLM"],"model_type":"minimax_m2",
              "bos_token_id":200034,"eos_token_id":200020,"head_dim":128,"hidden_act":"silu",
              "hidden_size":3072,"intermediate_size":1536,"max_position_embeddings":196608,
              "num_attention_heads":48,"num_experts_per_tok":8,"num_hidden_layers":62,
              "num_key_value_heads":8,"num_local_experts":256,"qk_norm_type":"per_layer",
              "rms_norm_eps":1e-06,"rope_theta":5000000,"rotary_dim":64,
              "scoring_func":"sigmoid","shared_intermediate_size":0,"sliding_window":null,
              "tie_word_embeddings":false,"use_qk_norm":true,"use_routing_bias":true,
              "vocab_size":200064})",
          .has = nullptr,
          .parameters = 228'689'764'864,
          .stored = 0,
          .layers = std::vector<Weights>(62, kLayer),
          .expert = kExpert,
          .idle = kExperts - 8,
          .embedding = Bf16(kVocab * kHidden),
          .head = Bf16(kVocab * kHidden + kHidden),
          .kv_of_layer = 2 * kKeys * 2};
}

ModelRuntime RuntimeOf(const Mixture& row) {
  return testing::PublicModel(row.name, row.config, row.has);
}

testing::PublicSizes SizesOf(const Mixture& row) {
  testing::PublicSizes sizes{.layers = {},
                             .embedding = row.embedding.kept,
                             .head = row.head.kept,
                             .kv_of_layer = row.kv_of_layer,
                             .window = row.window,
                             .full_every = row.full_every};
  for (const Weights& layer : row.layers) {
    sizes.layers.push_back(layer.kept);
  }
  return sizes;
}

Weights AllOf(const Mixture& row) {
  Weights all = row.embedding + row.head;
  for (const Weights& layer : row.layers) {
    all = all + layer;
  }
  return all;
}

class PublicMixtureTest : public ::testing::TestWithParam<Mixture> {};

TEST_P(PublicMixtureTest, TheTableAddsUpToWhatIsPublished) {
  const Weights all = AllOf(GetParam());
  EXPECT_EQ(all.count, GetParam().parameters);
  if (GetParam().stored != 0) {
    EXPECT_EQ(all.stored, GetParam().stored);
  }
}

TEST_P(PublicMixtureTest, WeightsAndKvOfEveryLayerAreExactToTheByte) {
  const Mixture& row = GetParam();
  const ModelRuntime runtime = RuntimeOf(row);
  testing::ExpectSizes(runtime, SizesOf(row));
  uint64_t stored = 0;
  for (const ManifestTensor& tensor : runtime.manifest->tensors) {
    stored += tensor.bytes;
  }
  EXPECT_EQ(stored, AllOf(row).stored);
  const WeightAccount account = AccountWeights(*runtime.manifest);
  EXPECT_EQ(account.total_bytes, AllOf(row).kept);
  // What a token reads of a layer is all but the experts that it is not routed to.
  EXPECT_EQ(account.layer_read_bytes.back(), row.layers.back().kept - row.idle * row.expert.kept);
}

TEST_P(PublicMixtureTest, APlanGrantsJustThat) {
  testing::ExpectPlan(RuntimeOf(GetParam()), SizesOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, PublicMixtureTest,
                         ::testing::Values(Qwen3(), Qwen3Gptq(), Mixtral(), GptOss(), DeepSeekV3(),
                                           DeepSeekV3Awq(), KimiK2(), Glm45Air(), MiniMaxM2()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::erase_if(name, [](char c) {
                             return !std::isalnum(static_cast<unsigned char>(c));
                           });
                           return name;
                         });

// int8: 8 bits and a float32 scale for 128 inputs; int4: 4 bits and two float16 for 64.
constexpr uint64_t Int8(uint64_t outputs, uint64_t inputs) {
  return outputs * (inputs + (inputs + 127) / 128 * 4);
}
constexpr uint64_t Int4(uint64_t outputs, uint64_t inputs) {
  return outputs * (inputs / 2 + (inputs + 63) / 64 * 4);
}

// Experts that are stored in 4 bits stay so.
TEST(PublicMixtures, GptOssQuantizesAttentionAlone) {
  const ModelRuntime runtime = RuntimeOf(GptOss());
  v1::LoadOptions options = testing::PublicOptions();
  options.set_quantize(v1::QUANTIZE_INT8);
  const uint64_t matrices = 2 * (2 * 4096 * 2880 + 2 * 512 * 2880);
  EXPECT_EQ(runtime.ForPlanner(options).layer_bytes[5], GptOss().layers[5].kept - matrices +
                                                            Int8(4096, 2880) + 2 * Int8(512, 2880) +
                                                            Int8(2880, 4096));
}

// What keys and values are made of by stays float32, and the router as it is.
TEST(PublicMixtures, DeepSeekInIntegersKeepsLatentMatricesInFloats) {
  const ModelRuntime runtime = RuntimeOf(DeepSeekV3());
  v1::LoadOptions options = testing::PublicOptions();
  const uint64_t same = 32768 * 512 * 4 + 256 * 7168 * 2 + 256 * 4 + (2 * 7168 + 1536 + 512) * 2;
  options.set_quantize(v1::QUANTIZE_INT8);
  EXPECT_EQ(runtime.ForPlanner(options).layer_bytes[3],
            same + Int8(1536, 7168) + Int8(24576, 1536) + Int8(576, 7168) + Int8(7168, 16384) +
                257 * (2 * Int8(2048, 7168) + Int8(7168, 2048)));
  options.set_quantize(v1::QUANTIZE_INT4);
  EXPECT_EQ(runtime.ForPlanner(options).layer_bytes[3],
            same + Int4(1536, 7168) + Int4(24576, 1536) + Int4(576, 7168) + Int4(7168, 16384) +
                257 * (2 * Int4(2048, 7168) + Int4(7168, 2048)));
}

}  // namespace
}  // namespace strata
