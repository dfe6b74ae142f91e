// The configurations of families of dense models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/config_testing.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::FamilyConfig;
using ::testing::HasSubstr;
using testing::Parse;
using testing::WindowsOf;

TEST(ModelConfig, ReadsMistral) {
  json config = FamilyConfig("mistral");
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "mistral");
  EXPECT_EQ(spec->layers[0].attention.head_dim, 32);  // Not 64 / 3.
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(20, 20, 20));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(WindowsOf(*Parse(config)), ElementsAre(0, 0, 0));
  config.erase("sliding_window");
  EXPECT_THAT(WindowsOf(*Parse(config)), ElementsAre(4096, 4096, 4096));
  // Over the whole context it is none.
  config["sliding_window"] = 32768;
  EXPECT_THAT(WindowsOf(*Parse(config)), ElementsAre(0, 0, 0));
}

TEST(ModelConfig, ReadsQwen) {
  json config = FamilyConfig("qwen2");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->layers[0].attention.qkv_bias);
  EXPECT_FALSE(spec->layers[0].attention.out_bias);
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(0, 0, 0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(WindowsOf(*Parse(config)), ElementsAre(0, 0, 16));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(WindowsOf(*Parse(config)), ElementsAre(16, 0, 0));
  spec = Parse(FamilyConfig("qwen3"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.qk_norm, QkNorm::kHead);
  EXPECT_FALSE(spec->layers[0].attention.qkv_bias);
  EXPECT_EQ(spec->layers[0].attention.head_dim, 32);
}

TEST(ModelConfig, ReadsLayersWithoutRotation) {
  json config = FamilyConfig("smollm3");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied_head);
  EXPECT_EQ(spec->layers[0].attention.rope.theta, 5e6);
  const auto rotating = [](const ModelSpec& model) {
    std::vector<bool> rotates;
    for (const LayerSpec& layer : model.layers) {
      rotates.push_back(layer.attention.rotates);
    }
    return rotates;
  };
  EXPECT_THAT(rotating(*spec), ElementsAre(true, true, true, false));
  config["no_rope_layers"] = {0, 1, 1, 1};
  EXPECT_THAT(rotating(*Parse(config)), ElementsAre(false, true, true, true));
  config.erase("no_rope_layers");
  config["no_rope_layer_interval"] = 2;
  EXPECT_THAT(rotating(*Parse(config)), ElementsAre(true, false, true, false));
}

TEST(ModelConfig, ReadsMultipliers) {
  const auto spec = Parse(FamilyConfig("granite"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->embedding_scale, 3.0f);
  EXPECT_EQ(spec->logits_divisor, 1.75f);
  EXPECT_EQ(spec->layers[1].branch_scale, 0.7f);
  EXPECT_EQ(spec->layers[1].attention.scale, 0.25f);
}

TEST(ModelConfig, ReadsOlmo2) {
  const auto spec = Parse(FamilyConfig("olmo2"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].norm_places, NormPlaces::kAfter);
  EXPECT_EQ(spec->layers[0].attention.qk_norm, QkNorm::kProjection);
}

TEST(ModelConfig, ReadsPhi3AndItsLongRope) {
  auto spec = Parse(FamilyConfig("phi3"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->layers[0].attention.fused_qkv && spec->layers[0].mlp.fused_gate_up);
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(23, 23, 23));
  EXPECT_EQ(LongRotaryAbove(*spec), 0u);
  json config = FamilyConfig("phi4-mini");
  // As its repository has it, besides what transformers has by now.
  config["auto_map"] = {{"AutoModelForCausalLM", "modeling_phi3.Phi3ForCausalLM"}};
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(0, 0, 0));
  const RopeSpec& rope = spec->layers[0].attention.rope;
  EXPECT_EQ(rope.rotary_dim, 12);
  EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(rope.short_factors.size(), 6u);
  EXPECT_EQ(rope.long_factors[5], 16.0);
  EXPECT_NEAR(rope.magnitude, std::sqrt(1 + std::log(32.0) / std::log(64.0)), 1e-14);
  EXPECT_EQ(LongRotaryAbove(*spec), 64u);
  json with_factor = config;
  with_factor["rope_scaling"]["factor"] = 4.0;
  EXPECT_NEAR(Parse(with_factor)->layers[0].attention.rope.magnitude,
              std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-14);
  with_factor["rope_scaling"]["original_max_position_embeddings"] = 65;
  EXPECT_FALSE(Parse(with_factor).ok());
  for (const char* old : {"su", "yarn"}) {
    config["rope_scaling"]["type"] = old;
    EXPECT_EQ(Parse(config)->layers[0].attention.rope, rope);
  }
}

TEST(ModelConfig, ReadsGemma) {
  json first = FamilyConfig("gemma");
  auto spec = Parse(first);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied_head);
  EXPECT_EQ(spec->embedding_scale, 8.0f);
  EXPECT_EQ(spec->layers[0].attention.scale, static_cast<float>(1 / std::sqrt(24.0)));
  EXPECT_EQ(spec->layers[0].norm, NormKind::kRmsOnePlus);
  EXPECT_EQ(spec->layers[0].norm_places, NormPlaces::kBefore);
  EXPECT_EQ(spec->layers[0].mlp.activation, ActivationKind::kGeluTanh);
  // Google's first files say so.
  first["hidden_act"] = "gelu";
  first.erase("hidden_activation");
  spec = Parse(first);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].mlp.activation, ActivationKind::kGeluTanh);
  spec = Parse(FamilyConfig("gemma2"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied_head);
  EXPECT_EQ(spec->embedding_scale, 8.0f);
  EXPECT_EQ(spec->final_soft_cap, 14.0f);
  EXPECT_EQ(spec->layers[0].attention.soft_cap, 6.0f);
  EXPECT_EQ(spec->layers[0].attention.scale, static_cast<float>(1 / std::sqrt(12.0)));
  EXPECT_EQ(spec->layers[0].norm, NormKind::kRmsOnePlus);
  EXPECT_EQ(spec->layers[0].norm_places, NormPlaces::kAround);
  EXPECT_EQ(spec->layers[0].mlp.activation, ActivationKind::kGeluTanh);
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(16, 0, 16, 0));
  json config = FamilyConfig("gemma3");
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->final_soft_cap, 0.0f);
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(18, 18, 18, 18, 18, 0, 18));
  const RopeSpec& local = spec->layers[0].attention.rope;
  const RopeSpec& global = spec->layers[5].attention.rope;
  EXPECT_EQ(local.theta, 1e4);
  EXPECT_EQ(local.scaling, RopeScaling::kNone);
  EXPECT_EQ(global.theta, 1e6);
  EXPECT_EQ(global.scaling, RopeScaling::kLinear);
  EXPECT_EQ(global.factor, 8.0);
  EXPECT_EQ(RopesOf(*spec).size(), 2u);
  // As transformers 5 writes it.
  for (const char* field : {"rope_theta", "rope_scaling", "rope_local_base_freq"}) {
    config.erase(field);
  }
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  const auto other = Parse(config);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(RopesOf(*other), RopesOf(*spec));
}

// The multimodal sizes of Gemma 3 name little, and put it within text_config.
TEST(ModelConfig, ReadsADecoderWithinAModelOfSeveralParts) {
  const json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                       {"model_type", "gemma3"},
                       {"eos_token_id", {1, 106}},
                       {"vision_config", {{"hidden_size", 1152}}},
                       {"text_config",
                        {{"hidden_size", 2560},
                         {"intermediate_size", 10240},
                         {"model_type", "gemma3_text"},
                         {"num_hidden_layers", 34},
                         {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                         {"sliding_window", 1024}}}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->tensor_prefix, "language_model.");
  EXPECT_EQ(spec->vocab, 262208);
  EXPECT_EQ(spec->context, 131072);
  EXPECT_EQ(spec->layers[0].attention.heads, 8);
  EXPECT_EQ(spec->layers[0].attention.kv_heads, 4);
  EXPECT_EQ(spec->layers[0].attention.head_dim, 256);
  EXPECT_THAT(spec->eos_ids, ElementsAre(1, 106));
  EXPECT_EQ(spec->kv_groups.size(), 2u);
  EXPECT_EQ(WindowsOf(*spec)[5], 0u);
}

TEST(ModelConfig, ReadsTheLanguageModelOfMiniCpmO) {
  json config = FamilyConfig("minicpm-o");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "minicpm-o");
  EXPECT_EQ(spec->tensor_prefix, "llm.");
  EXPECT_TRUE(spec->layers[0].attention.qkv_bias);
  EXPECT_EQ(spec->layers[0].attention.qk_norm, QkNorm::kNone);
  // 4.5 has Qwen3 within it.
  config["version"] = 4.5;
  config["head_dim"] = 16;
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->layers[0].attention.qkv_bias);
  EXPECT_EQ(spec->layers[0].attention.qk_norm, QkNorm::kHead);
  config["version"] = "5";
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("version \"5\" of model_type \"minicpmo\""));
}

TEST(ModelConfig, GraniteScalesInputEmbeddingsAndGemmaDoesNot) {
  EXPECT_EQ(Parse(FamilyConfig("granite"))->input_embedding_scale, 3.0f);
  EXPECT_EQ(Parse(FamilyConfig("gemma3"))->input_embedding_scale, 1.0f);
}

// transformers 5 writes {"__float__": "Infinity"} for infinities.
TEST(ModelConfig, AnInfiniteCapIsNone) {
  json config = FamilyConfig("gemma2");
  config["final_logit_softcapping"] = {{"__float__", "Infinity"}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->final_soft_cap, 0);
  config["final_logit_softcapping"] = {{"__float__", "NaN"}};
  EXPECT_FALSE(Parse(config).ok());
  config["final_logit_softcapping"] = 1e7;
  EXPECT_FALSE(Parse(config).ok());
  config = FamilyConfig("gpt-oss");
  config["swiglu_limit"] = {{"__float__", "Infinity"}};
  EXPECT_EQ(Parse(config)->layers[0].mlp.clamp, std::numeric_limits<float>::max());
  config["rms_norm_eps"] = {{"__float__", "Infinity"}};
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("rms_norm_eps {\"__float__\":\"Infinity\"} is not in"));
}

}  // namespace
}  // namespace strata
