// What configurations say of how weights are stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace strata
