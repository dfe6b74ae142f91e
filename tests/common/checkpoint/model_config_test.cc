#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/limits.h"
#include "common/random.h"
#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using testing::GoldenPath;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadFileOrFail;
using testing::SmallConfig;
using testing::SourcePath;

absl::StatusOr<ModelSpec> Parse(const json& config, std::string_view generation = "") {
  return ParseModelConfig(config.dump(), generation);
}

json Small() { return json::parse(SmallConfig()); }

absl::StatusOr<ModelSpec> ParseFolder(const std::string& folder) {
  return ParseModelConfig(ReadFileOrFail(folder + "/config.json"),
                          ReadFileOrFail(folder + "/generation_config.json"));
}

// compressed-tensors' settings of 4 bits in groups of 128, but for these of weights and of all.
using Fields = std::map<std::string, json>;
json Compressed(const Fields& weights, const Fields& all = {}) {
  json group = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}};
  for (const auto& [name, value] : weights) {
    group[name] = value;
  }
  json config = {{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}};
  config["config_groups"]["group_0"] = {{"targets", {"Linear"}}, {"weights", std::move(group)}};
  for (const auto& [name, value] : all) {
    config[name] = value;
  }
  return config;
}

TEST(ModelConfig, ReadsGroupedQueriesUntied) {
  const auto spec = ParseFolder(GoldenPath("models/llama"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "llama");
  EXPECT_EQ(spec->hidden, 64);
  EXPECT_EQ(spec->vocab, 259);
  EXPECT_EQ(spec->context, 8192);
  EXPECT_FALSE(spec->tied_head);
  EXPECT_EQ(spec->final_norm_eps, 1e-3f);
  ASSERT_EQ(spec->layers.size(), 3);
  const LayerSpec& layer = spec->layers[2];
  EXPECT_EQ(layer.norm_eps, 1e-3f);
  EXPECT_EQ(layer.attention.heads, 8);
  EXPECT_EQ(layer.attention.kv_heads, 2);
  EXPECT_EQ(layer.attention.head_dim, 8);
  EXPECT_EQ(layer.attention.scale, static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_EQ(layer.attention.rope.rotary_dim, 8);
  EXPECT_EQ(layer.attention.rope.theta, 500000);
  EXPECT_EQ(layer.attention.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(layer.mlp.ffn, 96);
  EXPECT_EQ(spec->kv_groups.size(), 1);
  EXPECT_EQ(spec->kv_groups[0].kind, KvKind::kFull);
  EXPECT_EQ(spec->bos_id, 1);
  EXPECT_THAT(spec->eos_ids, ElementsAre(2));
}

TEST(ModelConfig, ReadsLlama31) {
  const auto spec = ParseFolder(GoldenPath("models/llama31"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied_head);
  const AttentionSpec& attention = spec->layers[0].attention;
  EXPECT_EQ(attention.heads, 2);
  EXPECT_EQ(attention.kv_heads, 1);
  EXPECT_EQ(attention.head_dim, 32);
  const RopeSpec want{.rotary_dim = 32,
                      .theta = 500000,
                      .scaling = RopeScaling::kLlama3,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_context = 64};
  EXPECT_EQ(attention.rope, want);
  EXPECT_THAT(spec->eos_ids, ElementsAre(257, 258, 259));
}

TEST(ModelConfig, ReadsLlama2WithoutKvHeadsAndTheta) {
  const auto spec = ParseFolder(GoldenPath("models/llama2-mha-f32"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.kv_heads, 4);
  EXPECT_EQ(spec->layers[0].attention.head_dim, 16);
  EXPECT_EQ(spec->layers[0].attention.rope.theta, 10000);
}

TEST(ModelConfig, ReadsTheBundledModel) {
  const auto spec = ParseFolder(SourcePath("models/recall"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 8);
  EXPECT_EQ(spec->layers[0].attention.head_dim, 32);
  EXPECT_THAT(spec->eos_ids, ElementsAre(1009, 1012));
}

TEST(ModelConfig, ReadsExplicitHeadDim) {
  json config = Small();
  config["head_dim"] = 6;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.head_dim, 6);
  EXPECT_EQ(spec->layers[0].attention.rope.rotary_dim, 6);
  config["head_dim"] = nullptr;
  EXPECT_EQ(Parse(config)->layers[0].attention.head_dim, 4);
  // Heads need not divide the hidden size then.
  config["hidden_size"] = 9;
  EXPECT_FALSE(Parse(config).ok());
  config["head_dim"] = 4;
  EXPECT_TRUE(Parse(config).ok());
}

TEST(ModelConfig, ReadsBothStylesOfRotation) {
  const json llama3 = {{"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  json old_style = Small();
  old_style["rope_theta"] = 500000;
  old_style["rope_scaling"] = llama3;
  old_style["rope_scaling"]["type"] = "llama3";
  json new_style = Small();
  new_style.erase("rope_theta");
  new_style["rope_parameters"] = llama3;
  new_style["rope_parameters"]["rope_type"] = "llama3";
  new_style["rope_parameters"]["rope_theta"] = 500000.0;
  const auto old_spec = Parse(old_style);
  const auto new_spec = Parse(new_style);
  ASSERT_TRUE(old_spec.ok()) << old_spec.status();
  ASSERT_TRUE(new_spec.ok()) << new_spec.status();
  EXPECT_EQ(old_spec->layers[0].attention.rope, new_spec->layers[0].attention.rope);
  EXPECT_EQ(new_spec->layers[0].attention.rope.theta, 500000);
  EXPECT_EQ(new_spec->layers[0].attention.rope.factor, 32);

  json plain = Small();
  plain.erase("rope_theta");
  plain["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 20000.0}};
  const auto spec = Parse(plain);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope.theta, 20000);
  EXPECT_EQ(spec->layers[0].attention.rope.scaling, RopeScaling::kNone);
  plain["rope_parameters"] = {{"rope_theta", 30000.0}};
  EXPECT_EQ(Parse(plain)->layers[0].attention.rope.theta, 30000);
  plain["rope_scaling"] = nullptr;
  EXPECT_TRUE(Parse(plain).ok());
  plain["rope_scaling"] = json::object();
  EXPECT_TRUE(Parse(plain).ok());
}

TEST(ModelConfig, TakesTheOriginalContextFromTheTopLevel) {
  json config = Small();
  config["original_max_position_embeddings"] = 32;
  config["rope_scaling"] = {
      {"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope.original_context, 32);
}

TEST(ModelConfig, PrefersTheGenerationConfigsEos) {
  json config = Small();
  EXPECT_THAT(Parse(config)->eos_ids, ElementsAre(2));
  EXPECT_THAT(Parse(config, R"({"eos_token_id":[7,8]})")->eos_ids, ElementsAre(7, 8));
  EXPECT_THAT(Parse(config, R"({"eos_token_id":9})")->eos_ids, ElementsAre(9));
  EXPECT_THAT(Parse(config, R"({"eos_token_id":null})")->eos_ids, ElementsAre(2));
  EXPECT_THAT(Parse(config, "{}")->eos_ids, ElementsAre(2));
  config["eos_token_id"] = {4, 5};
  EXPECT_THAT(Parse(config)->eos_ids, ElementsAre(4, 5));
  config.erase("eos_token_id");
  EXPECT_THAT(Parse(config)->eos_ids, IsEmpty());
  config.erase("bos_token_id");
  EXPECT_FALSE(Parse(config)->bos_id.has_value());
  EXPECT_EQ(Parse(config, R"({"bos_token_id":3})")->bos_id, 3);
}

TEST(ModelConfig, ListsBiases) {
  json config = Small();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<std::string> names;
  for (const StageTensor& tensor : TensorsOf(*spec, 1, 1, false, false)) {
    names.push_back(tensor.name);
  }
  const std::string p = "model.layers.1.";
  EXPECT_THAT(names, ElementsAre(p + "input_layernorm.weight", p + "self_attn.q_proj.weight",
                                 p + "self_attn.q_proj.bias", p + "self_attn.k_proj.weight",
                                 p + "self_attn.k_proj.bias", p + "self_attn.v_proj.weight",
                                 p + "self_attn.v_proj.bias", p + "self_attn.o_proj.weight",
                                 p + "self_attn.o_proj.bias", p + "post_attention_layernorm.weight",
                                 p + "mlp.gate_proj.weight", p + "mlp.gate_proj.bias",
                                 p + "mlp.up_proj.weight", p + "mlp.up_proj.bias",
                                 p + "mlp.down_proj.weight", p + "mlp.down_proj.bias"));
}

TEST(TensorsOf, GivesEachStageWhatItNeeds) {
  auto spec = Parse(Small());
  ASSERT_TRUE(spec.ok());
  const auto names = [&](uint32_t first, uint32_t last, bool embeds, bool heads) {
    std::vector<std::string> out;
    for (const StageTensor& tensor : TensorsOf(*spec, first, last, embeds, heads)) {
      if (tensor.name.find("layers") == std::string::npos) {
        out.push_back(tensor.name);
      }
    }
    return out;
  };
  EXPECT_THAT(names(0, 0, true, false), ElementsAre("model.embed_tokens.weight"));
  EXPECT_THAT(names(0, 1, false, false), IsEmpty());
  EXPECT_THAT(names(1, 1, false, true), ElementsAre("model.norm.weight", "lm_head.weight"));
  spec->tied_head = true;
  EXPECT_THAT(names(1, 1, false, true),
              ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
  EXPECT_THAT(names(0, 1, true, true),
              ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
  const auto tensors = TensorsOf(*spec, 0, 0, false, false);
  EXPECT_EQ(tensors[2].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_THAT(tensors[2].shape, ElementsAre(4, 8));
}

struct Change {
  const char* field;
  json value;
  const char* says;
};

json FamilyConfig(const std::string& model) {
  return json::parse(ReadFileOrFail(GoldenPath("models/" + model + "/config.json")));
}

std::vector<uint32_t> WindowsOf(const ModelSpec& spec) {
  std::vector<uint32_t> windows;
  for (const LayerSpec& layer : spec.layers) {
    windows.push_back(spec.kv_groups[layer.attention.kv_group].window);
  }
  return windows;
}

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
  for (const char* old : {"su", "yarn"}) {
    config["rope_scaling"]["type"] = old;
    EXPECT_EQ(Parse(config)->layers[0].attention.rope, rope);
  }
}

TEST(ModelConfig, ReadsGemma) {
  auto spec = Parse(FamilyConfig("gemma2"));
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
TEST(ModelConfig, ReadsMixtral) {
  json config = FamilyConfig("mixtral");
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "mixtral");
  for (const LayerSpec& layer : spec->layers) {
    EXPECT_EQ(layer.mlp.experts, config["num_local_experts"]);
    EXPECT_EQ(layer.mlp.router.used, config["num_experts_per_tok"]);
    EXPECT_EQ(layer.mlp.ffn, config["intermediate_size"]);
    EXPECT_TRUE(layer.mlp.router.renormalize);
    EXPECT_EQ(layer.mlp.router.scores, RouterScores::kSoftmax);
  }
  std::set<std::string> names;
  for (const StageTensor& tensor : TensorsOf(*spec, 1, 1, false, false)) {
    names.insert(tensor.name);
  }
  for (const char* name : {"gate", "experts.0.w1", "experts.3.w2", "experts.3.w3"}) {
    EXPECT_TRUE(names.contains(std::string("model.layers.1.block_sparse_moe.") + name + ".weight"))
        << name;
  }
  config.erase("num_local_experts");
  config.erase("num_experts_per_tok");
  EXPECT_EQ(Parse(config)->layers[0].mlp.experts, 8u);
  EXPECT_EQ(Parse(config)->layers[0].mlp.router.used, 2u);
}

TEST(ModelConfig, ReadsWhichLayersOfQwen3MoeAreMixtures) {
  json config = FamilyConfig("qwen3-moe");
  const auto mixtures = [&] {
    const auto spec = Parse(config);
    EXPECT_TRUE(spec.ok()) << spec.status();
    std::string text;
    for (const LayerSpec& layer : spec->layers) {
      text += layer.mlp.experts == 0 ? '-' : 'x';
      EXPECT_EQ(layer.mlp.ffn, layer.mlp.experts == 0 ? config["intermediate_size"]
                                                      : config["moe_intermediate_size"]);
    }
    return text;
  };
  config["num_hidden_layers"] = 5;
  config["mlp_only_layers"] = json::array();
  config["decoder_sparse_step"] = 1;
  EXPECT_EQ(mixtures(), "xxxxx");
  config["decoder_sparse_step"] = 2;
  EXPECT_EQ(mixtures(), "-x-x-");
  config["mlp_only_layers"] = {3, 4};
  EXPECT_EQ(mixtures(), "-x---");
  config["num_experts"] = 0;
  EXPECT_EQ(mixtures(), "-----");
  config = FamilyConfig("qwen3-moe");
  EXPECT_TRUE(Parse(config)->layers[0].mlp.router.renormalize);
  config.erase("norm_topk_prob");
  EXPECT_FALSE(Parse(config)->layers[0].mlp.router.renormalize);
  EXPECT_FALSE(Parse(FamilyConfig("qwen3-moe-nonorm"))->layers.back().mlp.router.renormalize);
}

TEST(ModelConfig, ReadsGptOss) {
  json config = FamilyConfig("gpt-oss");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(19, 0, 19));
  const LayerSpec& layer = spec->layers[1];
  EXPECT_TRUE(layer.attention.sinks && layer.attention.qkv_bias && layer.attention.out_bias);
  EXPECT_EQ(layer.attention.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(layer.mlp.experts, 4u);
  EXPECT_EQ(layer.mlp.router.used, 2u);
  EXPECT_EQ(layer.mlp.router.scores, RouterScores::kSoftmaxOfChosen);
  EXPECT_TRUE(layer.mlp.router.bias && layer.mlp.bias);
  EXPECT_EQ(layer.mlp.activation, ActivationKind::kClampedSilu);
  EXPECT_EQ(layer.mlp.clamp, 2.5f);
  config.erase("layer_types");
  config.erase("swiglu_limit");
  config.erase("sliding_window");
  config["num_hidden_layers"] = 4;
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(128, 0, 128, 0));
  EXPECT_EQ(spec->layers[0].mlp.clamp, 7.0f);
  // Blocks where there are any.
  const auto exists = [](const std::string& name) { return name.ends_with("_blocks"); };
  std::map<std::string, std::vector<uint64_t>> shapes;
  for (const StageTensor& tensor : TensorsOf(*spec, 2, 2, false, false, exists)) {
    shapes[tensor.name] = tensor.shape;
  }
  const std::string folder = "model.layers.2.mlp.experts.";
  EXPECT_THAT(shapes[folder + "gate_up_proj_blocks"], ElementsAre(4, 64, 2, 16));
  EXPECT_THAT(shapes[folder + "down_proj_scales"], ElementsAre(4, 64, 1));
  EXPECT_FALSE(shapes.contains(folder + "down_proj"));
  EXPECT_TRUE(shapes.contains("model.layers.2.self_attn.sinks"));
  EXPECT_TRUE(Parse(FamilyConfig("gpt-oss-mxfp4")).ok());
}

TEST(TensorsOf, ExpertsMayBeOneTensor) {
  const auto spec = Parse(FamilyConfig("qwen3-moe"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const MlpSpec& mlp = spec->layers[0].mlp;
  const auto exists = [](const std::string& name) {
    return name.find("switch_mlp") != std::string::npos;
  };
  int found = 0;
  for (const StageTensor& tensor : TensorsOf(*spec, 0, 0, false, false, exists)) {
    EXPECT_EQ(tensor.name.find(".experts."), std::string::npos) << tensor.name;
    if (tensor.name == "model.layers.0.mlp.switch_mlp.up_proj.weight") {
      EXPECT_THAT(tensor.shape, ElementsAre(mlp.experts, mlp.ffn, spec->hidden));
      ++found;
    } else if (tensor.name == "model.layers.0.mlp.switch_mlp.down_proj.weight") {
      EXPECT_THAT(tensor.shape, ElementsAre(mlp.experts, spec->hidden, mlp.ffn));
      ++found;
    }
  }
  EXPECT_EQ(found, 2);
}

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

TEST(ModelConfig, ReadsDeepSeekV2) {
  const auto spec = Parse(FamilyConfig("deepseek-v2"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const AttentionSpec& attention = spec->layers[2].attention;
  EXPECT_EQ(attention.heads, 4);
  EXPECT_EQ(attention.head_dim, 24);
  EXPECT_EQ(attention.latent.rank, 32);
  EXPECT_EQ(attention.latent.query_rank, 0);
  EXPECT_EQ(attention.latent.nope_dim, 16);
  EXPECT_EQ(attention.latent.rope_dim, 8);
  EXPECT_EQ(attention.latent.value_dim, 16);
  EXPECT_EQ(attention.latent.norm_eps, 1e-6f);
  // mscale enters twice, and cancels out in sine and cosine.
  EXPECT_NEAR(attention.scale, std::pow(0.1 * 0.707 * std::log(8.0) + 1, 2) / std::sqrt(24.0),
              1e-7);
  EXPECT_EQ(attention.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(attention.rope.rotary_dim, 8);
  EXPECT_EQ(attention.rope.magnitude, 1.0);
  EXPECT_EQ(attention.rope.yarn_low, 0.0);
  EXPECT_EQ(attention.rope.yarn_high, 2.0);
  EXPECT_EQ(spec->kv_groups, (std::vector<KvGroupSpec>{{KvKind::kMla, 0}}));
  EXPECT_EQ(KvBytesPerToken(*spec, 0, 2, 0, 2), 3u * (32 + 8) * 2);
  EXPECT_EQ(spec->layers[0].mlp.experts, 0);
  EXPECT_EQ(spec->layers[0].mlp.ffn, 96);
  const MlpSpec& mlp = spec->layers[1].mlp;
  EXPECT_EQ(mlp.experts, 4);
  EXPECT_EQ(mlp.ffn, 32);
  EXPECT_EQ(mlp.shared_ffn, 32);
  EXPECT_EQ(mlp.router.used, 2);
  EXPECT_EQ(mlp.router.scores, RouterScores::kSoftmax);
  EXPECT_FALSE(mlp.router.renormalize);
  EXPECT_EQ(mlp.router.groups, 1);
}

// What V2 ignores, and how its larger size chooses.
TEST(ModelConfig, ReadsDeepSeekV2sGroups) {
  json config = FamilyConfig("deepseek-v2");
  config["norm_topk_prob"] = true;
  config["topk_method"] = "group_limited_greedy";
  config["n_group"] = 2;
  config["topk_group"] = 1;
  config["routed_scaling_factor"] = 16.0;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const RouterSpec& router = spec->layers[1].mlp.router;
  EXPECT_FALSE(router.renormalize);
  EXPECT_EQ(router.groups, 2);
  EXPECT_EQ(router.groups_used, 1);
  EXPECT_EQ(router.group_best, 1);
  EXPECT_EQ(router.scale, 16.0f);
}

TEST(ModelConfig, ReadsDeepSeekV3) {
  json config = FamilyConfig("deepseek-v3");
  // The layer that predicts a further token is not the decoder's.
  config["num_nextn_predict_layers"] = 1;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 3u);
  EXPECT_EQ(spec->layers[0].attention.latent.query_rank, 48);
  const MlpSpec& mlp = spec->layers[2].mlp;
  EXPECT_EQ(mlp.experts, 8);
  EXPECT_EQ(mlp.shared_ffn, 16);
  EXPECT_EQ(mlp.router.used, 3);
  EXPECT_EQ(mlp.router.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(mlp.router.renormalize && mlp.router.corrected);
  EXPECT_EQ(mlp.router.groups, 4);
  EXPECT_EQ(mlp.router.groups_used, 2);
  EXPECT_EQ(mlp.router.group_best, 2);
  EXPECT_EQ(mlp.router.scale, 2.5f);
}

// As published; integers of experts are read of MLX alone.
TEST(ModelConfig, ReadsDeepSeekV3InEightBitFloats) {
  json config = FamilyConfig("deepseek-v3");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kFloat8);
  config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("quantization_config of a mixture of experts"));
}

TEST(ModelConfig, GraniteScalesInputEmbeddingsAndGemmaDoesNot) {
  EXPECT_EQ(Parse(FamilyConfig("granite"))->input_embedding_scale, 3.0f);
  EXPECT_EQ(Parse(FamilyConfig("gemma3"))->input_embedding_scale, 1.0f);
}

struct FamilyChange {
  const char* model;
  const char* field;
  json value;
  const char* says;
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
      {"gemma2", "hidden_activation", "gelu", "hidden_activation \"gelu\""},
      {"gemma2", "final_logit_softcapping", -3, "final_logit_softcapping -3"},
      {"gemma2", "query_pre_attn_scalar", 0, "query_pre_attn_scalar 0"},
      {"gemma3", "use_bidirectional_attention", true, "use_bidirectional_attention true"},
      {"gemma3", "sliding_window_pattern", 0, "sliding_window_pattern 0"},
      {"gemma3", "rope_local_base_freq", "x", "rope_local_base_freq"},
      {"gemma3", "rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}, "rope_parameters"},
      {"mixtral", "num_local_experts", 0, "num_local_experts 0"},
      {"mixtral", "num_local_experts", 100000, "num_local_experts 100000"},
      {"mixtral", "num_experts_per_tok", 5, "num_experts_per_tok 5 is above num_local_experts 4"},
      {"mixtral", "num_experts", 4, "num_experts 4"},
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
      {"gpt-oss", "intermediate_size", 40, "intermediate_size 40 is not a multiple of 32"},
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
       {{"type", "yarn"}, {"factor", 4}},
       "rope_scaling type \"yarn\" is not supported yet"},
      {"rope_scaling",
       {{"rope_type", "longrope"}},
       "rope_scaling type \"longrope\" is not supported yet"},
      {"rope_scaling",
       {{"rope_type", "linear"}, {"factor", 2.0}, {"beta", 1}},
       "rope_scaling.\"beta\" 1 with type \"linear\" is not supported yet"},
      {"rope_parameters",
       {{"rope_type", "dynamic"}},
       "rope_parameters type \"dynamic\" is not supported yet"},
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "default"}}}},
       "rope_parameters per kind of layer"},
      {"rope_parameters",
       {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
       "rope_parameters.partial_rotary_factor 0.5 is not supported yet"},
      {"rope_scaling", {{"rope_type", "default"}, {"factor", 8.0}}, "\"factor\" 8.0"},
      {"quantization_config", {{"quant_method", "bitsandbytes"}}, "quant_method \"bitsandbytes\""},
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
      {"quantization_config", Compressed({{"num_bits", 3}}), "weights.num_bits 3"},
      {"quantization_config", Compressed({{"strategy", "tensor"}}), "weights.strategy \"tensor\""},
      {"quantization_config", Compressed({{"group_size", 16}}), "weights.group_size 16"},
      {"quantization_config", Compressed({{"type", "float"}}), "weights.type \"float\""},
      {"quantization_config", Compressed({{"actorder", 1}}), "weights.actorder 1"},
      {"quantization_config", Compressed({}, {{"format", "marlin-24"}}),
       "quantization_config.format \"marlin-24\""},
      {"quantization_config", Compressed({}, {{"kv_cache_scheme", {{"num_bits", 8}}}}),
       "quantization_config.kv_cache_scheme"},
      {"quantization_config", Compressed({}, {{"transform_config", {{"config_groups", 1}}}}),
       "quantization_config.transform_config"},
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
      {"quantization", {{"bits", 3}, {"group_size", 64}}, "quantization.bits 3"},
      {"quantization", {{"bits", 4}, {"group_size", 48}}, "quantization.group_size 48"},
      {"quantization",
       {{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}},
       "quantization.mode \"mxfp4\""},
      {"quantization",
       {{"bits", 4}, {"a.b", {{"bits", 6}, {"group_size", 64}}}},
       "quantization.\"a.b\".bits 6"},
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

TEST(ModelConfig, SaysHowOtherToolsQuantized) {
  json config = Small();
  config["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", 4},         {"group_size", 64},
      {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", {"lm_head"}}};
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kAwq);
  EXPECT_EQ(spec->quantization->by_default, (AffineSpec{4, 64}));
  config["quantization_config"]["modules_to_not_convert"] = {1};
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("quantization_config.modules_to_not_convert [1] is not a list of names"));

  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", -1}};
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kGptq);
  EXPECT_EQ(spec->quantization->by_default, (AffineSpec{8, 0}));
  EXPECT_TRUE(spec->quantization->zeros_less_one);
  EXPECT_FALSE(spec->quantization->has_order);
  config["quantization_config"].update(
      json{{"desc_act", true}, {"checkpoint_format", "gptq_v2"}, {"dynamic", {{"-:.*o", {}}}}});
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->quantization->zeros_less_one);
  EXPECT_TRUE(spec->quantization->has_order);
  for (const char* missing : {"bits", "group_size"}) {
    json broken = config;
    broken["quantization_config"][missing] = "many";
    EXPECT_THAT(std::string(Parse(broken).status().message()),
                HasSubstr(std::string("quantization_config.") + missing));
  }
}

TEST(ModelConfig, SaysHowCompressedTensorsAndFp8AreStored) {
  json config = Small();
  config["quantization_config"] = Compressed({{"actorder", "weight"}, {"symmetric", false}});
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kPacked);
  EXPECT_EQ(spec->quantization->by_default, (AffineSpec{4, 128}));
  EXPECT_TRUE(spec->quantization->has_zeros);
  EXPECT_FALSE(spec->quantization->has_order);
  config["quantization_config"] = Compressed({{"actorder", "group"}, {"strategy", "channel"}});
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->by_default, (AffineSpec{4, 0}));
  EXPECT_FALSE(spec->quantization->has_zeros);
  EXPECT_TRUE(spec->quantization->has_order);
  json two = Compressed({});
  two["config_groups"]["other"] = two["config_groups"]["group_0"];
  config["quantization_config"] = two;
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
  two["config_groups"]["other"]["weights"]["num_bits"] = 8;
  config["quantization_config"] = two;
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("config_groups.\"other\".weights that differ"));

  const auto blocks = [&](const json& quantization) {
    config["quantization_config"] = quantization;
    const auto parsed = Parse(config);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->quantization->method, QuantizationMethod::kFloat8);
    return std::pair(parsed->quantization->block_outputs, parsed->quantization->block_inputs);
  };
  const Fields floats = {{"format", "float-quantized"}};
  EXPECT_EQ(
      blocks(Compressed({{"type", "float"}, {"num_bits", 8}, {"strategy", "tensor"}}, floats)),
      std::pair(0u, 0u));
  EXPECT_EQ(
      blocks(Compressed({{"type", "float"}, {"num_bits", 8}, {"strategy", "channel"}}, floats)),
      std::pair(1u, 0u));
  EXPECT_EQ(blocks({{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}}),
            std::pair(128u, 64u));
  EXPECT_EQ(blocks({{"quant_method", "fp8"}}), std::pair(0u, 0u));
  EXPECT_EQ(blocks({{"quant_method", "fbgemm_fp8"}}), std::pair(1u, 0u));
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {0, 128}}};
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("quantization_config.weight_block_size [0,128] is not two sizes"));
}

TEST(ModelConfig, TakesSettingsThatMeanNothingSpecial) {
  json config = Small();
  config.update(json{{"sliding_window", nullptr},
                     {"partial_rotary_factor", 1.0},
                     {"hidden_act", "silu"},
                     {"layer_types", {"full_attention", "full_attention"}},
                     {"quantization_config", nullptr},
                     {"attn_logit_softcapping", nullptr},
                     {"embedding_multiplier", 1},
                     {"num_local_experts", 0},
                     {"use_qk_norm", false},
                     {"pretraining_tp", 1},
                     {"auto_map", {{"AutoTokenizer", "x.Y"}, {"AutoModel", "x.LlamaModel"}}},
                     {"_name_or_path", "somewhere"},
                     {"anything_else", {1, 2}}});
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
  config["sliding_window"] = 4096;
  config["use_sliding_window"] = false;
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
}

TEST(ModelConfig, RefusesContradictions) {
  const Change cases[] = {
      {"num_key_value_heads", 3, "num_key_value_heads 3 does not divide num_attention_heads 2"},
      {"num_attention_heads", 3, "num_attention_heads 3"},
      {"head_dim", 5, "head_dim 5"},
      {"rope_parameters", {{"rope_theta", 77.0}}, "rope_theta"},
      {"rope_scaling", {{"factor", 2.0}}, "rope_scaling has neither rope_type nor type"},
      {"rope_scaling",
       {{"rope_type", "default"}, {"type", "llama3"}},
       "rope_scaling has rope_type"},
      {"rope_scaling", {{"rope_type", "llama3"}}, "rope_scaling.factor is missing"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 4},
        {"high_freq_factor", 4},
        {"original_max_position_embeddings", 8}},
       "high_freq_factor"},
      {"rope_scaling", 3, "rope_scaling 3 is not an object"},
      {"architectures", json::array(), "architectures"},
      {"head_dim", 4095, "head_dim"},
  };
  for (const Change& change : cases) {
    json config = Small();
    config[change.field] = change.value;
    const auto spec = Parse(config);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << change.field;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(change.says));
    EXPECT_EQ(ReasonOf(spec.status()), "INVALID_CONFIG");
  }
}

TEST(ModelConfig, NamesTheFieldOfEveryBadValue) {
  const json bad[] = {"x",
                      -1,
                      1.5,
                      true,
                      json::array(),
                      json::object(),
                      "",
                      1e300,
                      -0.5,
                      json(UINT64_MAX),
                      json(INT64_MIN),
                      json::array({-1})};
  const char* integers[] = {
      "hidden_size",         "vocab_size", "num_hidden_layers", "num_attention_heads",
      "num_key_value_heads", "head_dim",   "intermediate_size", "max_position_embeddings"};
  int tried = 0;
  for (const char* field : integers) {
    for (const json& value : bad) {
      json config = Small();
      config[field] = value;
      const auto spec = Parse(config);
      EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << field << " " << value;
      EXPECT_THAT(std::string(spec.status().message()), HasSubstr(field)) << value;
      ++tried;
    }
    json config = Small();
    config[field] = 0;
    EXPECT_THAT(std::string(Parse(config).status().message()), HasSubstr(field));
  }
  EXPECT_EQ(tried, 96);
  for (const char* field : {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size"}) {
    json config = Small();
    config.erase(field);
    EXPECT_THAT(std::string(Parse(config).status().message()),
                HasSubstr(std::string(field) + " is missing"));
  }
  const Change others[] = {
      {"rms_norm_eps", "x", "rms_norm_eps"},
      {"rms_norm_eps", -1e-5, "rms_norm_eps"},
      {"rope_theta", 0, "rope_theta"},
      {"rope_theta", "x", "rope_theta"},
      {"rope_theta", 1e300, "rope_theta"},
      {"tie_word_embeddings", 1, "tie_word"},
      {"attention_bias", "no", "attention_bias"},
      {"mlp_bias", 0, "mlp_bias"},
      {"model_type", 5, "model_type"},
      {"eos_token_id", -1, "eos_token_id"},
      {"eos_token_id", {1, "2"}, "eos_token_id"},
      {"bos_token_id", 1.5, "bos_token_id"},
      {"hidden_act", 5, "hidden_act"},
      {"architectures", "x", "architectures"},
      {"eos_token_id", 1u << 30, "eos_token_id"},
      {"use_sliding_window", {1}, nullptr},
  };
  for (const Change& change : others) {
    json config = Small();
    config[change.field] = change.value;
    const auto spec = Parse(config);
    if (change.says == nullptr) {
      EXPECT_TRUE(spec.ok()) << spec.status();  // Read only where there is a window.
      continue;
    }
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << change.field;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(change.says)) << change.field;
  }
}

TEST(ModelConfig, RefusesAGenerationConfigThatIsWrong) {
  for (const char* text : {"{", "[]", R"({"eos_token_id":"x"})", R"({"eos_token_id":[-1]})"}) {
    const auto spec = Parse(Small(), text);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("generation_config.json")) << text;
  }
}

TEST(ModelConfig, RefusesWhatIsNoObject) {
  for (const char* text :
       {"", "{", "[]", "null", "{\"a\":1,\"a\":2}", "\xff", "{\"a\":\"\xff\"}"}) {
    const auto spec = ParseModelConfig(text, "");
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("config.json")) << text;
  }
  EXPECT_THAT(std::string(ParseModelConfig("{}", "").status().message()), HasSubstr("model_type"));
  std::string deep = "{\"a\":";
  deep.append(2000000, '[');
  EXPECT_FALSE(ParseModelConfig(deep, "").ok());
  EXPECT_FALSE(ParseModelConfig(std::string(kMaxSafetensorsHeaderBytes, ' '), "").ok());
}

// Any one or two values replaced: an error with a message, or a spec within the limits.
TEST(ModelConfig, SurvivesRandomValues) {
  const json values[] = {nullptr,
                         true,
                         false,
                         0,
                         1,
                         2,
                         3,
                         -1,
                         7.5,
                         1e308,
                         "",
                         "a",
                         "llama",
                         "default",
                         json::array(),
                         json::object(),
                         json::array({1, "x", nullptr}),
                         {{"rope_type", "llama3"}},
                         {{"factor", -1}},
                         json(UINT64_MAX),
                         65536,
                         1 << 24};
  std::vector<std::string> bases = {SmallConfig(),
                                    ReadFileOrFail(GoldenPath("models/llama31/config.json")),
                                    ReadFileOrFail(SourcePath("models/recall/config.json"))};
  for (const char* family : {"mistral", "qwen2", "qwen3", "smollm3", "granite", "olmo2", "phi3",
                             "phi4-mini", "gemma2", "gemma3"}) {
    bases.push_back(FamilyConfig(family).dump());
  }
  uint32_t draw = 0;
  const auto random = [&](uint64_t below) { return Philox(5, 0, draw++) % below; };
  int refused = 0;
  for (int i = 0; i < 8000; ++i) {
    json config = json::parse(bases[random(bases.size())]);
    for (uint64_t edits = 1 + random(2); edits > 0; --edits) {
      auto field = config.begin();
      std::advance(field, random(config.size()));
      json* target = &*field;
      if (target->is_object() && !target->empty() && random(2) == 0) {
        auto inner = target->begin();
        std::advance(inner, random(target->size()));
        target = &*inner;
      }
      *target = values[random(std::size(values))];
    }
    const auto spec = Parse(config);
    if (!spec.ok()) {
      ++refused;
      EXPECT_THAT(spec.status().code(),
                  AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnimplemented));
      // Some field is named.
      const std::string said(spec.status().message());
      bool named = said.find("architecture") != std::string::npos;
      for (const auto& [field, value] : config.items()) {
        named = named || said.find(field) != std::string::npos;
      }
      EXPECT_TRUE(named) << said;
      continue;
    }
    EXPECT_LE(spec->hidden, kMaxHiddenSize);
    EXPECT_LE(spec->layers.size(), kMaxLayers);
    for (const LayerSpec& layer : spec->layers) {
      const AttentionSpec& attention = layer.attention;
      ASSERT_LT(attention.kv_group, spec->kv_groups.size());
      ASSERT_EQ(attention.heads % attention.kv_heads, 0);
      ASSERT_EQ(attention.head_dim % 2, 0);
      ASSERT_GE(attention.rope.theta, 1);
      ASSERT_LE(attention.rope.rotary_dim, attention.head_dim);
      ASSERT_GT(attention.scale, 0);
      ASSERT_GT(layer.branch_scale, 0);
      for (const auto* factors : {&attention.rope.short_factors, &attention.rope.long_factors}) {
        ASSERT_TRUE(factors->empty() || factors->size() == attention.rope.rotary_dim / 2);
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace strata
