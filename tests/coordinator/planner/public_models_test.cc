// Sizes on paper: what the planner counts for public models, to the byte, against arithmetic on
// their published shapes. The configurations are those of the models' repositories on Hugging Face,
// without fields that say nothing of shapes; the numbers of parameters are those published there.
// Mixtures of experts: public_mixtures_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/planner/planner.h"
#include "coordinator/registry/manifest.h"
#include "coordinator/service/request/model_facts.h"
#include "coordinator/service/request/model_runtime.h"
#include "tests/coordinator/planner/public_model.h"

namespace strata {
namespace {

constexpr uint64_t kBf16 = 2;

struct PublicModel {
  const char* name;
  const char* config;
  uint64_t parameters;  // As published.
  uint64_t layers;
  uint64_t layer_parameters;
  uint64_t embedding;  // Parameters of the embedding; of the head too, where it is not tied.
  bool tied;
  uint64_t final_norm;
  uint64_t kv_heads_by_dim;  // Of a layer: KV heads * head_dim.
  uint32_t window = 0;       // As PublicSizes has them.
  uint32_t full_every = 0;
};

// q and o; k and v.
constexpr uint64_t Attention(uint64_t hidden, uint64_t queries, uint64_t keys) {
  return 2 * hidden * queries + 2 * hidden * keys;
}
// gate, up, down.
constexpr uint64_t Mlp(uint64_t hidden, uint64_t ffn) { return 3 * hidden * ffn; }

constexpr PublicModel kModels[] = {
    {"Llama-3.1-8B",
     R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":4096,
         "intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
         "num_key_value_heads":8,"vocab_size":128256,"rms_norm_eps":1e-05,"rope_theta":500000.0,
         "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
         "original_max_position_embeddings":8192,"rope_type":"llama3"},
         "max_position_embeddings":131072,"hidden_act":"silu","attention_bias":false,
         "mlp_bias":false,"tie_word_embeddings":false,"bos_token_id":128000,
         "eos_token_id":128001})",
     8'030'261'248, 32, Attention(4096, 4096, 1024) + Mlp(4096, 14336) + 2 * 4096, 128256 * 4096,
     false, 4096, 8 * 128},
    {"Llama-3.1-70B",
     R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8192,
         "intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,
         "num_key_value_heads":8,"vocab_size":128256,"rms_norm_eps":1e-05,"rope_theta":500000.0,
         "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
         "original_max_position_embeddings":8192,"rope_type":"llama3"},
         "max_position_embeddings":131072,"hidden_act":"silu","tie_word_embeddings":false,
         "bos_token_id":128000,"eos_token_id":128001})",
     70'553'706'496, 80, Attention(8192, 8192, 1024) + Mlp(8192, 28672) + 2 * 8192,
     uint64_t{128256} * 8192, false, 8192, 8 * 128},
    {"Llama-3.1-405B",
     R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":16384,
         "intermediate_size":53248,"num_hidden_layers":126,"num_attention_heads":128,
         "num_key_value_heads":8,"vocab_size":128256,"rms_norm_eps":1e-05,"rope_theta":500000.0,
         "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
         "original_max_position_embeddings":8192,"rope_type":"llama3"},
         "max_position_embeddings":131072,"hidden_act":"silu","tie_word_embeddings":false,
         "bos_token_id":128000,"eos_token_id":128001})",
     405'853'388'800, 126, Attention(16384, 16384, 1024) + Mlp(16384, 53248) + 2 * 16384,
     uint64_t{128256} * 16384, false, 16384, 8 * 128},
    // Biases of q, k and v.
    {"Qwen2.5-72B",
     R"({"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":8192,
         "intermediate_size":29568,"num_hidden_layers":80,"num_attention_heads":64,
         "num_key_value_heads":8,"vocab_size":152064,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
         "max_position_embeddings":131072,"max_window_layers":80,"sliding_window":131072,
         "use_sliding_window":false,"hidden_act":"silu","tie_word_embeddings":false,
         "bos_token_id":151643,"eos_token_id":151643})",
     72'706'203'648, 80,
     Attention(8192, 8192, 1024) + (8192 + 2 * 1024) + Mlp(8192, 29568) + 2 * 8192,
     uint64_t{152064} * 8192, false, 8192, 8 * 128},
    // Four norms, norms of q and k; the decoder alone: of 27,432,406,640 the vision tower and its
    // projection have 423,060,336.
    {"Gemma-3-27B",
     R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3",
         "eos_token_id":[1,106],"image_token_index":262144,"mm_tokens_per_image":256,
         "text_config":{"head_dim":128,"hidden_size":5376,"intermediate_size":21504,
         "model_type":"gemma3_text","num_attention_heads":32,"num_hidden_layers":62,
         "num_key_value_heads":16,"query_pre_attn_scalar":168,
         "rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024},
         "vision_config":{"hidden_size":1152,"image_size":896,"intermediate_size":4304,
         "model_type":"siglip_vision_model","num_attention_heads":16,"num_hidden_layers":27,
         "patch_size":14}})",
     27'432'406'640 - 423'060'336, 62,
     Attention(5376, 4096, 2048) + 2 * 128 + Mlp(5376, 21504) + 4 * 5376, uint64_t{262208} * 5376,
     true, 5376, 16 * 128, 1024, 6},
    // One matrix of q, k and v, one of gate and up.
    {"Phi-3-mini-4k",
     R"({"architectures":["Phi3ForCausalLM"],"model_type":"phi3",
         "auto_map":{"AutoConfig":"configuration_phi3.Phi3Config",
         "AutoModelForCausalLM":"modeling_phi3.Phi3ForCausalLM"},
         "hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064,
         "rms_norm_eps":1e-05,"rope_theta":10000.0,"rope_scaling":null,
         "max_position_embeddings":4096,"original_max_position_embeddings":4096,
         "sliding_window":2047,"hidden_act":"silu","attention_bias":false,
         "tie_word_embeddings":false,"bos_token_id":1,"eos_token_id":32000})",
     3'821'079'552, 32, Attention(3072, 3072, 3072) + Mlp(3072, 8192) + 2 * 3072, 32064 * 3072,
     false, 3072, 32 * 96, 2047},
    // The language model, Qwen2.5-7B's with another vocabulary: of its 7,615,616,512 parameters
    // those of 152064 - 151700 tokens are left out.
    {"MiniCPM-o-2.6",
     R"({"architectures":["MiniCPMO"],"model_type":"minicpmo","version":"2.6","hidden_size":3584,
         "intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,
         "num_key_value_heads":4,"vocab_size":151700,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
         "max_position_embeddings":32768,"max_window_layers":28,"sliding_window":131072,
         "use_sliding_window":false,"hidden_act":"silu","tie_word_embeddings":false,
         "bos_token_id":151643,"eos_token_id":151645})",
     7'615'616'512 - 2 * (152064 - 151700) * 3584, 28,
     Attention(3584, 3584, 512) + (3584 + 2 * 512) + Mlp(3584, 18944) + 2 * 3584, 151700 * 3584,
     false, 3584, 4 * 128},
    // The text alone, which is as large as Qwen2.5-7B: of 8,292,166,656 parameters the vision
    // tower has the others.
    {"Qwen2.5-VL-7B",
     R"({"architectures":["Qwen2_5_VLForConditionalGeneration"],"model_type":"qwen2_5_vl",
         "hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
         "num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,
         "rms_norm_eps":1e-06,"rope_theta":1000000.0,"rope_scaling":{"type":"mrope",
         "mrope_section":[16,24,24]},"max_position_embeddings":128000,"max_window_layers":28,
         "sliding_window":32768,"use_sliding_window":false,"hidden_act":"silu",
         "tie_word_embeddings":false,"bos_token_id":151643,"eos_token_id":151645,
         "image_token_id":151655,"vision_config":{"depth":32,"hidden_size":1280}})",
     7'615'616'512, 28, Attention(3584, 3584, 512) + (3584 + 2 * 512) + Mlp(3584, 18944) + 2 * 3584,
     152064 * 3584, false, 3584, 4 * 128},
    // More heads than the residual stream is wide for.
    {"Seed-OSS-36B",
     R"({"architectures":["SeedOssForCausalLM"],"model_type":"seed_oss","attention_bias":true,
         "attention_out_bias":false,"hidden_size":5120,"intermediate_size":27648,
         "num_hidden_layers":64,"num_attention_heads":80,"num_key_value_heads":8,"head_dim":128,
         "vocab_size":155136,"rms_norm_eps":1e-06,"rope_theta":10000000.0,
         "rope_scaling":{"rope_type":"default"},"max_position_embeddings":524288,
         "hidden_act":"silu","mlp_bias":false,"tie_word_embeddings":false,"bos_token_id":0,
         "eos_token_id":2})",
     36'151'104'512, 64,
     Attention(5120, 10240, 1024) + (10240 + 2 * 1024) + Mlp(5120, 27648) + 2 * 5120,
     uint64_t{155136} * 5120, false, 5120, 8 * 128},
    // Biases of q, k and v, four norms.
    {"GLM-4-9B-0414",
     R"({"architectures":["Glm4ForCausalLM"],"model_type":"glm4","attention_bias":true,
         "hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,
         "num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,"vocab_size":151552,
         "rms_norm_eps":1e-05,"rope_theta":10000.0,"partial_rotary_factor":0.5,
         "max_position_embeddings":32768,"hidden_act":"silu","tie_word_embeddings":false,
         "eos_token_id":[151329,151336,151338]})",
     9'400'279'040, 40, Attention(4096, 4096, 256) + (4096 + 2 * 256) + Mlp(4096, 13696) + 4 * 4096,
     uint64_t{151552} * 4096, false, 4096, 2 * 128},
};

ModelRuntime RuntimeOf(const PublicModel& row) {
  return testing::PublicModel(row.name, row.config);
}

testing::PublicSizes SizesOf(const PublicModel& row) {
  return {.layers = std::vector<uint64_t>(row.layers, kBf16 * row.layer_parameters),
          .embedding = kBf16 * row.embedding,
          .head = kBf16 * (row.embedding + row.final_norm),
          .kv_of_layer = 2 * row.kv_heads_by_dim * 2,  // K and V, float16.
          .window = row.window,
          .full_every = row.full_every};
}

class PublicModelTest : public ::testing::TestWithParam<PublicModel> {};

TEST_P(PublicModelTest, TheTableAddsUpToThePublishedNumberOfParameters) {
  const PublicModel& row = GetParam();
  EXPECT_EQ(row.layers * row.layer_parameters + (row.tied ? 1 : 2) * row.embedding + row.final_norm,
            row.parameters);
}

TEST_P(PublicModelTest, WeightsAndKvOfEveryLayerAreExactToTheByte) {
  const PublicModel& row = GetParam();
  const ModelRuntime runtime = RuntimeOf(row);
  testing::ExpectSizes(runtime, SizesOf(row));
  EXPECT_EQ(AccountWeights(*runtime.manifest).total_bytes, kBf16 * row.parameters);
}

TEST_P(PublicModelTest, APlanGrantsJustThat) {
  testing::ExpectPlan(RuntimeOf(GetParam()), SizesOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, PublicModelTest, ::testing::ValuesIn(kModels), [](const auto& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
});

// int8: 8 bits and a float32 scale for 128 inputs. int4: 4 bits, and for 64 inputs a scale and a
// bias in float16. Norms stay; embedding and head are int8 in both.
TEST(PublicModels, QuantizedSizesAreExactToo) {
  const PublicModel& llama = kModels[0];
  const ModelRuntime runtime = RuntimeOf(llama);
  const uint64_t norms = 2 * 4096;
  const uint64_t matrices = llama.layer_parameters - norms;
  v1::LoadOptions options = testing::PublicOptions();
  options.set_quantize(v1::QUANTIZE_INT8);
  const PlannerModel int8 = runtime.ForPlanner(options);
  EXPECT_EQ(int8.layer_bytes[7], matrices + matrices / 128 * 4 + kBf16 * norms);
  EXPECT_EQ(int8.embed_bytes, llama.embedding + llama.embedding / 128 * 4);
  options.set_quantize(v1::QUANTIZE_INT4);
  const PlannerModel int4 = runtime.ForPlanner(options);
  EXPECT_EQ(int4.layer_bytes[7], matrices / 2 + matrices / 64 * 4 + kBf16 * norms);
  EXPECT_EQ(int4.head_bytes, int8.embed_bytes + kBf16 * 4096);
}

// `model add` and `model show` say so.
TEST(PublicModels, AreDescribedWithTheirMemoryAndWhatTheyCannot) {
  ModelRuntime runtime = RuntimeOf(kModels[0]);
  runtime.tokenizer_problem = absl::FailedPreconditionError("no tokenizer at all");
  runtime.template_problem = absl::FailedPreconditionError("no chat template at all");
  EXPECT_EQ(DescribeModel(runtime).kv_bytes_per_token(), 32 * 2 * 8 * 128 * 2);
  const v1::ModelFacts facts = FactsOf(runtime);
  ASSERT_EQ(facts.layers_size(), 32);
  EXPECT_EQ(facts.layers(31).weight_bytes(), kBf16 * kModels[0].layer_parameters);
  EXPECT_EQ(facts.layers(31).kv_bytes_per_token(), 2 * 8 * 128 * 2);
  EXPECT_EQ(facts.embedding_bytes(), kBf16 * kModels[0].embedding);
  EXPECT_EQ(facts.weight_bytes_none(), kBf16 * kModels[0].parameters);
  v1::LoadOptions options = testing::PublicOptions();
  options.set_quantize(v1::QUANTIZE_INT4);
  EXPECT_EQ(facts.layers(3).weight_bytes_int4(), runtime.ForPlanner(options).layer_bytes[3]);
  EXPECT_THAT(facts.cannot(),
              ::testing::IsSupersetOf({::testing::HasSubstr("no tokenizer at all"),
                                       ::testing::HasSubstr("no chat template at all"),
                                       ::testing::HasSubstr("131072 tokens at most")}));
}

}  // namespace
}  // namespace strata
