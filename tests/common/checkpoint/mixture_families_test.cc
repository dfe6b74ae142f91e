// The configurations of families with experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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

// transformers 4 wrote num_experts of Qwen3-MoE, 5 num_local_experts; others are mapped likewise.
TEST(ModelConfig, ReadsTheNumberOfExpertsUnderEachOfItsNames) {
  for (const char* model : {"mixtral", "qwen3-moe", "gpt-oss", "deepseek-v2", "deepseek-v3"}) {
    json config = FamilyConfig(model);
    const auto spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const uint32_t experts = spec->layers.back().mlp.experts;
    EXPECT_GT(experts, 0u);
    constexpr const char* kNames[] = {"num_experts", "num_local_experts", "n_routed_experts"};
    for (const char* name : kNames) {
      for (const char* other : kNames) {
        config.erase(other);
      }
      config[name] = experts + 1;
      if (std::string(model) == "deepseek-v3") {
        config["n_group"] = config["topk_group"] = 1;
      }
      const auto renamed = Parse(config);
      ASSERT_TRUE(renamed.ok()) << model << " " << name << " " << renamed.status();
      EXPECT_EQ(renamed->layers.back().mlp.experts, experts + 1) << model << " " << name;
    }
  }
}

TEST(ModelConfig, GptOssRotatesByYarnWhereItsFileSaysNothing) {
  json config = FamilyConfig("gpt-oss");
  config["rope_scaling"]["original_max_position_embeddings"] = 4096;
  const RopeSpec said = Parse(config)->layers[0].attention.rope;
  config.erase("rope_scaling");
  EXPECT_EQ(Parse(config)->layers[0].attention.rope, said);
  EXPECT_EQ(said.scaling, RopeScaling::kYarn);
  config["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(Parse(config)->layers[0].attention.rope.scaling, RopeScaling::kNone);
}

TEST(ModelConfig, ReadsTheGainOfGptOssActivation) {
  json config = FamilyConfig("gpt-oss");
  EXPECT_EQ(Parse(config)->layers[0].mlp.gain, 1.702f);
  config["swiglu_alpha"] = 1.2;
  EXPECT_EQ(Parse(config)->layers[0].mlp.gain, 1.2f);
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

TEST(TensorsOf, FusedExpertsMayLieEitherWayRound) {
  const auto spec = Parse(FamilyConfig("qwen3-moe"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const MlpSpec& mlp = spec->layers[0].mlp;
  const auto exists = [](const std::string& name) {
    return name.ends_with("mlp.experts.gate_up_proj") || name.ends_with("mlp.experts.down_proj");
  };
  int found = 0;
  for (const StageTensor& tensor : TensorsOf(*spec, 0, 0, false, false, exists)) {
    if (exists(tensor.name)) {
      const bool down = tensor.name.ends_with("down_proj");
      const uint64_t outputs = down ? spec->hidden : 2 * mlp.ffn;
      const uint64_t inputs = down ? mlp.ffn : spec->hidden;
      EXPECT_THAT(tensor.shape, ElementsAre(mlp.experts, outputs, inputs));
      EXPECT_TRUE(tensor.Fits(std::vector<uint64_t>{mlp.experts, inputs, outputs}));
      EXPECT_FALSE(tensor.Fits(std::vector<uint64_t>{inputs, mlp.experts, outputs}));
      EXPECT_FALSE(tensor.Fits(std::vector<uint64_t>{mlp.experts, inputs + 1, outputs}));
      ++found;
    }
  }
  EXPECT_EQ(found, 2);
}

TEST(TensorsOf, FusedExpertsOfEightBitFloatsHaveAScaleForEachSquareBlock) {
  json config = FamilyConfig("qwen3-moe");
  const auto first = [&](const json& block) {
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", block}};
    const auto spec = Parse(config);
    EXPECT_TRUE(spec.ok()) << spec.status();
    for (const StageTensor& tensor :
         TensorsOf(*spec, 0, 0, false, false, [](const std::string& name) {
           return name.ends_with("mlp.experts.gate_up_proj") ||
                  name.ends_with("mlp.experts.gate_up_proj_scale_inv");
         })) {
      if (tensor.name.ends_with("mlp.experts.gate_up_proj")) {
        return tensor;
      }
    }
    return StageTensor();
  };
  const ModelSpec spec = *Parse(FamilyConfig("qwen3-moe"));
  const MlpSpec& mlp = spec.layers[0].mlp;
  const StageTensor blocks = first({8, 8});
  ASSERT_TRUE(blocks.matrix.has_value());
  EXPECT_THAT(blocks.matrix->scales.shape, ElementsAre(mlp.experts, mlp.ffn / 4, spec.hidden / 8));
  EXPECT_TRUE(blocks.may_be_transposed);
  EXPECT_FALSE(first({8, 16}).matrix.has_value()) << "not square";
  EXPECT_FALSE(first({2 * mlp.ffn, 2 * mlp.ffn}).matrix.has_value()) << "of gate and up both";
}

TEST(TensorsOf, MiniMaxM2sFusedExpertsHaveTheirCorrectionBesideThem) {
  const auto spec = Parse(FamilyConfig("minimax-m2"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::set<std::string> names;
  for (const StageTensor& tensor : TensorsOf(
           *spec, 0, 0, false, false,
           [](const std::string& name) { return name.ends_with("mlp.experts.gate_up_proj"); })) {
    names.insert(tensor.name);
  }
  EXPECT_TRUE(names.contains("model.layers.0.mlp.e_score_correction_bias"));
  EXPECT_TRUE(names.contains("model.layers.0.mlp.gate.weight"));
  EXPECT_FALSE(names.contains("model.layers.0.block_sparse_moe.e_score_correction_bias"));
}

TEST(TensorsOf, ExpertsOfOneTensorMayHaveBiases) {
  const auto spec = Parse(FamilyConfig("gpt-oss"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto exists = [](const std::string& name) {
    return name.find("switch_mlp") != std::string::npos;
  };
  std::map<std::string, StageTensor> found;
  for (const StageTensor& tensor : TensorsOf(*spec, 0, 0, false, false, exists)) {
    EXPECT_EQ(tensor.name.find(".experts."), std::string::npos) << tensor.name;
    found[tensor.name] = tensor;
  }
  const std::string folder = "model.layers.0.mlp.switch_mlp.";
  EXPECT_THAT(found[folder + "gate_proj.weight"].shape, ElementsAre(4, 32, 64));
  EXPECT_THAT(found[folder + "gate_proj.bias"].shape, ElementsAre(4, 32));
  EXPECT_THAT(found[folder + "up_proj.bias"].shape, ElementsAre(4, 32));
  EXPECT_THAT(found[folder + "down_proj.bias"].shape, ElementsAre(4, 64));
  EXPECT_THAT(found[folder + "down_proj.bias"].dtypes,
              ElementsAre(Dtype::kF32, Dtype::kF16, Dtype::kBF16));
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

// As published.
TEST(ModelConfig, ReadsDeepSeekV3InEightBitFloats) {
  json config = FamilyConfig("deepseek-v3");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kFloat8);
}

// As AutoAWQ writes it: experts, shared ones and attention, all but the router. What latent vectors
// become keys and values by is used in floats, and the router would be.
TEST(ModelConfig, ReadsExpertsInIntegersOfOtherTools) {
  json config = FamilyConfig("deepseek-v2");
  config["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"version", "gemm"}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto stored = [&](bool router_too) {
    std::map<std::string, StageTensor> tensors;
    const auto exists = [&](const std::string& name) {
      return (router_too || name.find(".mlp.gate.") == std::string::npos) &&
             (name.ends_with(".qweight") || name.ends_with(".scales"));
    };
    for (const StageTensor& tensor : TensorsOf(*spec, 1, 1, false, false, exists)) {
      tensors[tensor.name] = tensor;
    }
    return tensors;
  };
  const std::string layer = "model.layers.1.";
  const auto all = stored(false);
  EXPECT_TRUE(all.contains(layer + "mlp.gate.weight"));
  const StageTensor& expert = all.at(layer + "mlp.experts.3.down_proj.qweight");
  ASSERT_TRUE(expert.matrix.has_value());
  EXPECT_EQ(expert.matrix->KeptGroup(), 32);
  EXPECT_TRUE(all.at(layer + "mlp.experts.3.down_proj.qzeros").part);
  EXPECT_EQ(all.at(layer + "mlp.shared_experts.up_proj.qweight").matrix->KeptGroup(), 32);
  EXPECT_EQ(all.at(layer + "self_attn.q_proj.qweight").matrix->KeptGroup(), 32);
  const StoredMatrix& latent = *all.at(layer + "self_attn.kv_b_proj.qweight").matrix;
  EXPECT_EQ(latent.KeptGroup(), 0);
  EXPECT_EQ(latent.KeptBytes(), latent.outputs * latent.inputs * sizeof(float));
  EXPECT_EQ(stored(true).at(layer + "mlp.gate.qweight").matrix->KeptGroup(), 0);
}

TEST(ModelSpec, KnowsWhatStaysAsItIsByTheNamesOfEveryFormat) {
  for (const char* weights : {".weight", ".qweight", ".weight_packed"}) {
    for (const char* path : {"mlp.gate", "block_sparse_moe.gate", "mlp.router"}) {
      EXPECT_TRUE(IsRouter(std::string("model.layers.1.") + path + weights)) << path << weights;
    }
    EXPECT_TRUE(StaysAsStored(std::string("model.layers.1.self_attn.kv_b_proj") + weights));
    EXPECT_FALSE(StaysAsStored(std::string("model.layers.1.mlp.gate_proj") + weights));
  }
  EXPECT_FALSE(StaysAsStored("model.layers.1.self_attn.kv_b_proj.scales"));
  EXPECT_FALSE(StaysAsStored("model.layers.1.mlp.gate"));
}

}  // namespace
}  // namespace strata
