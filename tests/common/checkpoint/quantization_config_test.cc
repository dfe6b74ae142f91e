// What configurations say of how weights are stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/config_testing.h"

namespace strata {
namespace {

using nlohmann::json;
using testing::Compressed;
using testing::Fields;
using ::testing::HasSubstr;
using testing::Parse;
using testing::Small;

TEST(ModelConfig, SaysHowOtherToolsQuantized) {
  json config = Small();
  config["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", 4},         {"group_size", 64},
      {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", {"lm_head"}}};
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kAwq);
  EXPECT_EQ(spec->quantization->integers, (AffineSpec{4, 64}));
  config["quantization_config"]["modules_to_not_convert"] = {1};
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("quantization_config.modules_to_not_convert [1] is not a list of names"));

  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", -1}};
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kGptq);
  EXPECT_EQ(spec->quantization->integers, (AffineSpec{8, 0}));
  EXPECT_TRUE(spec->quantization->zeros_less_one);
  EXPECT_FALSE(spec->quantization->has_order);
  config["quantization_config"].update(
      json{{"desc_act", true}, {"checkpoint_format", "gptq_v2"}, {"dynamic", {{"-:.*o", {}}}}});
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->quantization->zeros_less_one);
  EXPECT_FALSE(spec->quantization->has_order) << "in one group";
  config["quantization_config"]["group_size"] = 128;
  EXPECT_TRUE(Parse(config)->quantization->has_order);
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
  EXPECT_EQ(spec->quantization->integers, (AffineSpec{4, 128}));
  EXPECT_TRUE(spec->quantization->has_zeros);
  EXPECT_FALSE(spec->quantization->has_order);
  config["quantization_config"] = Compressed({{"actorder", "group"}, {"strategy", "channel"}});
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->integers, (AffineSpec{4, 0}));
  EXPECT_FALSE(spec->quantization->has_zeros);
  EXPECT_TRUE(spec->quantization->has_order);
  json two = Compressed({});
  two["config_groups"]["other"] = two["config_groups"]["group_0"];
  config["quantization_config"] = two;
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
  EXPECT_TRUE(Parse(config)->quantization->rules.empty());

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

// Of several schemes the most specific target says: a path, a pattern (the first by its text), a
// class; of the same target the last group.
TEST(ModelConfig, ReadsTheAlgorithmsOfModelOpt) {
  json config = Small();
  const auto read = [&](const json& said) {
    config["quantization_config"] = said;
    config["quantization_config"]["quant_method"] = "modelopt";
    return Parse(config);
  };
  for (const char* algorithm : {"NVFP4", "FP8", "MIXED_PRECISION"}) {
    const auto spec = read({{"quant_algo", algorithm}, {"group_size", 16}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->quantization->method, QuantizationMethod::kModelOpt);
  }
  // As an older file has it, all within.
  const auto spec = read({{"quantization", {{"quant_algo", "MXFP8"}}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->quantization->method, QuantizationMethod::kFloat8);
  EXPECT_EQ(spec->quantization->block_inputs, 32u);
  EXPECT_THAT(std::string(read(json::object()).status().message()),
              HasSubstr("quant_algo is missing"));
}

// How keys and values were to be kept is said of activations.
TEST(ModelConfig, TakesAQuantizedKvCacheAsItTakesActivations) {
  json config = Small();
  config["quantization_config"] = Compressed({}, {{"kv_cache_scheme", {{"num_bits", 8}}}});
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
}

TEST(ModelConfig, SchemesAreThoseOfTheirTargets) {
  json config = Small();
  json all = Compressed({{"strategy", "channel"}});
  const auto add = [&](const char* name, const json& targets, int bits) {
    json& group = all["config_groups"][name];
    group = all["config_groups"]["group_0"];
    group["targets"] = targets;
    group["weights"]["num_bits"] = bits;
  };
  add("group_1", {"re:.*mlp.*", "re:.*down_proj$"}, 8);
  add("group_2", {"model.layers.1.mlp.down_proj"}, 3);
  add("group_3", {"re:.*down_proj$"}, 6);
  add("group_4", {"lm_head"}, 5);
  all["config_groups"]["activations"] = {{"targets", {"re:.*attn"}}, {"weights", nullptr}};
  config["quantization_config"] = all;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto bits = [&](const char* path, bool embedding = false) -> uint32_t {
    const StoredScheme* const scheme = spec->quantization->At(path, embedding);
    return scheme == nullptr ? 0 : scheme->integers.bits;
  };
  EXPECT_EQ(bits("model.layers.0.self_attn.q_proj"), 4u);
  EXPECT_EQ(bits("model.layers.0.mlp.up_proj"), 8u);
  EXPECT_EQ(bits("model.layers.0.mlp.down_proj"), 6u);
  EXPECT_EQ(bits("model.layers.1.mlp.down_proj"), 3u);
  EXPECT_EQ(bits("lm_head"), 5u);
  EXPECT_EQ(bits("model.embed_tokens", true), 0u);
  all["config_groups"]["group_1"]["targets"] = {"re:(unclosed"};
  config["quantization_config"] = all;
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("target \"re:(unclosed\" is no pattern"));
}

TEST(ModelConfig, SaysEachFormatOfCompressedTensors) {
  const auto method = [](const Fields& weights, const char* format) {
    json config = Small();
    config["quantization_config"] = Compressed(weights, {{"format", format}});
    // How activations were to be quantized is accepted.
    config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = {
        {"num_bits", 8}, {"dynamic", true}};
    const auto spec = Parse(config);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? spec->quantization->method : QuantizationMethod::kMlx;
  };
  EXPECT_EQ(method({{"num_bits", 8}, {"strategy", "channel"}}, "int-quantized"),
            QuantizationMethod::kIntegers);
  EXPECT_EQ(method({{"num_bits", 8}, {"strategy", "tensor"}}, "naive-quantized"),
            QuantizationMethod::kIntegers);
  EXPECT_EQ(method({{"type", "float"}, {"group_size", 32}}, "mxfp4-pack-quantized"),
            QuantizationMethod::kMxfp4);
  EXPECT_EQ(method({{"type", "float"}, {"group_size", 16}, {"strategy", "tensor_group"}},
                   "nvfp4-pack-quantized"),
            QuantizationMethod::kNvfp4);
  EXPECT_EQ(method({{"type", "float"}, {"num_bits", 8}, {"group_size", 32}}, "mxfp8-quantized"),
            QuantizationMethod::kFloat8);
}

// What an override leaves out its own mode says, and not the mode of all.
TEST(ModelConfig, MlxOverridesHaveTheDefaultsOfTheirMode) {
  json config = Small();
  config["quantization"] = {{"group_size", 32},
                            {"bits", 4},
                            {"mode", "mxfp4"},
                            {"a", {{"group_size", nullptr}, {"bits", 6}, {"mode", "affine"}}},
                            {"b", {{"bits", 8}, {"group_size", 128}}},
                            {"c", {{"mode", "nvfp4"}}},
                            {"d", {{"mode", "mxfp8"}, {"bits", nullptr}}},
                            {"e", false}};
  config["quantization_config"] = config["quantization"];
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto at = [&](const char* path) { return *spec->quantization->At(path, false); };
  EXPECT_EQ(at("z").method, QuantizationMethod::kMlxMxfp4);
  EXPECT_EQ(at("a").method, QuantizationMethod::kMlx);
  EXPECT_EQ(at("a").integers, (AffineSpec{6, 64}));
  EXPECT_EQ(at("b").method, QuantizationMethod::kMlx);
  EXPECT_EQ(at("b").integers, (AffineSpec{8, 128}));
  EXPECT_EQ(at("c").integers, (AffineSpec{4, 16}));
  EXPECT_EQ(at("d").integers, (AffineSpec{8, 32}));
  // What was said of the files that MLX quantized it does not look at.
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
  config["quantization_config"] = {{"bits", 8}};
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("quantization_config {\"bits\":8} beside another quantization"));
}

// Which is what mlx-lm computes with, whatever the configuration says.
TEST(ModelConfig, WhatMlxQuantizedCutsTheRangeOfYarnToWholePairs) {
  json config = testing::FamilyConfig("gpt-oss");
  const auto low = [&] { return Parse(config)->layers[0].attention.rope.yarn_low; };
  const double uncut = low();
  EXPECT_NE(uncut, std::floor(uncut));
  config["quantization"] = {{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}};
  EXPECT_EQ(low(), std::floor(uncut));
}

}  // namespace
}  // namespace strata
