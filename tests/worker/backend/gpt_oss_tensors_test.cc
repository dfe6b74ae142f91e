// gpt-oss' experts as backends read them.
#include "worker/backend/gpt_oss_tensors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/model/block_formats.h"
#include "common/model/gpt_oss_experts.h"

namespace strata {
namespace {

constexpr uint64_t kExperts = 3;
constexpr uint64_t kHidden = 64;
constexpr uint64_t kFfn = 24;
const std::string kFolder = "model.layers.1.mlp.experts.";

// Tensors in memory, and what was released of them.
class Tensors : public TensorSource {
 public:
  template <typename T>
  void Add(const std::string& name, Dtype dtype, std::vector<uint64_t> shape,
           const std::vector<T>& values) {
    std::string& bytes = bytes_[name];
    bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    views_[name] = {dtype, std::move(shape), reinterpret_cast<const uint8_t*>(bytes.data()),
                    bytes.size()};
  }
  absl::StatusOr<TensorView> Find(std::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? absl::StatusOr<TensorView>(absl::NotFoundError("no tensor"))
                                 : found->second;
  }
  void Release(std::string_view name, size_t bytes) const override {
    released[std::string(name)] = bytes;
  }
  std::map<std::string, TensorView, std::less<>> views_;
  mutable std::map<std::string, size_t> released;

 private:
  std::map<std::string, std::string> bytes_;
};

ModelSpec Spec() {
  ModelSpec spec;
  spec.hidden = kHidden;
  spec.layers.resize(2);
  for (LayerSpec& layer : spec.layers) {
    layer.mlp.ffn = kFfn;
    layer.mlp.experts = kExperts;
    layer.mlp.expert_names = ExpertNames::kGptOss;
  }
  return spec;
}

// Whose every value says where it is.
float ValueAt(uint64_t expert, uint64_t input, uint64_t output) {
  return static_cast<float>(expert * 10000 + input * 100 + output);
}

Tensors Floats() {
  Tensors tensors;
  const auto add = [&](const std::string& name, uint64_t inputs, uint64_t outputs) {
    std::vector<float> values, bias;
    for (uint64_t e = 0; e < kExperts; ++e) {
      for (uint64_t k = 0; k < inputs; ++k) {
        for (uint64_t n = 0; n < outputs; ++n) {
          values.push_back(ValueAt(e, k, n));
        }
      }
      for (uint64_t n = 0; n < outputs; ++n) {
        bias.push_back(ValueAt(e, 99, n));
      }
    }
    tensors.Add(kFolder + name, Dtype::kF32, {kExperts, inputs, outputs}, values);
    tensors.Add(kFolder + name + "_bias", Dtype::kF32, {kExperts, outputs}, bias);
  };
  add("gate_up_proj", kHidden, 2 * kFfn);
  add("down_proj", kFfn, kHidden);
  return tensors;
}

std::vector<float> ReadFloats(const GptOssTensors& tensors, const std::string& name) {
  const auto view = tensors.Find(kFolder + name);
  EXPECT_TRUE(view.ok()) << view.status();
  std::vector<float> values(view->bytes / sizeof(float));
  std::memcpy(values.data(), view->data, view->bytes);
  return values;
}

TEST(GptOssTensors, GateAndUpAreEverySecondColumnOfAnExpert) {
  const Tensors source = Floats();
  const GptOssTensors tensors(Spec(), 1, 1, source);
  const struct {
    const char* name;
    uint64_t first, step, outputs, inputs;
  } cases[] = {{"2.gate_proj", 0, 2, kFfn, kHidden},
               {"1.up_proj", 1, 2, kFfn, kHidden},
               {"0.down_proj", 0, 1, kHidden, kFfn}};
  for (const auto& one : cases) {
    const uint64_t expert = one.name[0] - '0';
    const auto info = tensors.Describe(kFolder + one.name + ".weight");
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_THAT(info->shape, ::testing::ElementsAre(one.outputs, one.inputs));
    EXPECT_EQ(info->bytes, one.outputs * one.inputs * sizeof(float));
    const std::vector<float> weights = ReadFloats(tensors, std::string(one.name) + ".weight");
    const std::vector<float> bias = ReadFloats(tensors, std::string(one.name) + ".bias");
    ASSERT_EQ(bias.size(), one.outputs);
    for (uint64_t n = 0; n < one.outputs; ++n) {
      const uint64_t column = one.first + one.step * n;
      EXPECT_EQ(bias[n], ValueAt(expert, 99, column));
      for (uint64_t k = 0; k < one.inputs; ++k) {
        ASSERT_EQ(weights[n * one.inputs + k], ValueAt(expert, k, column)) << one.name;
      }
    }
  }
}

// As Qwen3-VL's mixtures are stored.
TEST(GptOssTensors, ExpertsOfOthersThatLieInputsFirstHaveGateBeforeUp) {
  const Tensors source = Floats();
  ModelSpec spec = Spec();
  for (LayerSpec& layer : spec.layers) {
    layer.mlp.expert_names = ExpertNames::kMlp;
  }
  const GptOssTensors tensors(spec, 1, 1, source);
  const struct {
    const char* name;
    uint64_t first, outputs, inputs;
  } cases[] = {{"2.gate_proj", 0, kFfn, kHidden},
               {"1.up_proj", kFfn, kFfn, kHidden},
               {"0.down_proj", 0, kHidden, kFfn}};
  for (const auto& one : cases) {
    const uint64_t expert = one.name[0] - '0';
    const std::vector<float> weights = ReadFloats(tensors, std::string(one.name) + ".weight");
    ASSERT_EQ(weights.size(), one.outputs * one.inputs);
    for (uint64_t n = 0; n < one.outputs; ++n) {
      for (uint64_t k = 0; k < one.inputs; ++k) {
        ASSERT_EQ(weights[n * one.inputs + k], ValueAt(expert, k, one.first + n)) << one.name;
      }
    }
  }
}

TEST(GptOssTensors, BlocksOfMxfp4KeepTheirValues) {
  constexpr float kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  Tensors source;
  std::vector<uint8_t> blocks(kExperts * 2 * kFfn * 2 * 16), scales(kExperts * 2 * kFfn * 2);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = static_cast<uint8_t>(i * 37 + i / 7);
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = static_cast<uint8_t>(i % 255);
  }
  source.Add(kFolder + "gate_up_proj_blocks", Dtype::kU8, {kExperts, 2 * kFfn, 2, 16}, blocks);
  source.Add(kFolder + "gate_up_proj_scales", Dtype::kU8, {kExperts, 2 * kFfn, 2}, scales);
  const GptOssTensors tensors(Spec(), 1, 1, source);
  for (uint64_t expert = 0; expert < kExperts; ++expert) {
    const auto view = tensors.Find(kFolder + std::to_string(expert) + ".up_proj.weight");
    ASSERT_TRUE(view.ok()) << view.status();
    ASSERT_EQ(view->dtype, Dtype::kMXFP4);
    ASSERT_EQ(view->bytes, TensorBytes(Dtype::kMXFP4, view->shape));
    for (uint64_t n = 0; n < kFfn; ++n) {
      const uint64_t row = (expert * 2 * kFfn + 2 * n + 1) * 2;
      for (uint64_t part = 0; part < 2; ++part) {
        float got[kBlockPart];
        DecodePart(Dtype::kMXFP4, view->data + n * 2 * BlockBytes(Dtype::kMXFP4), part, got);
        for (uint64_t k = 0; k < kBlockPart; ++k) {
          const uint8_t code = blocks[(row + part) * 16 + k / 2] >> k % 2 * 4 & 15;
          const float value = code < 8 ? kValues[code] : -kValues[code - 8];
          ASSERT_EQ(got[k], std::ldexp(value, scales[row + part] - 127)) << n << " " << k;
        }
      }
    }
  }
}

TEST(GptOssTensors, WhatIsStoredIsReleasedAsItsExpertsAre) {
  const Tensors source = Floats();
  const GptOssTensors tensors(Spec(), 0, 1, source);
  std::vector<std::string> names;
  for (uint64_t e = 0; e < kExperts; ++e) {
    names.push_back(kFolder + std::to_string(e) + ".gate_proj.weight");
    names.push_back(kFolder + std::to_string(e) + ".up_proj.weight");
  }
  ASSERT_TRUE(tensors.Prepare(names).ok());
  const std::string stored = kFolder + "gate_up_proj";
  const size_t all = source.views_.at(stored).bytes;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto view = tensors.Find(names[i]);
    ASSERT_TRUE(view.ok()) << view.status();
    tensors.Release(names[i], view->bytes / 2);
    EXPECT_EQ(source.released[stored], all / kExperts * (i / 2));
    tensors.Release(names[i], view->bytes);
    EXPECT_EQ(source.released[stored], all / kExperts * ((i + 1) / 2));
  }
}

TEST(GptOssTensors, OtherShapesThanGptOssHasAreRefused) {
  Tensors source = Floats();
  source.views_.at(kFolder + "down_proj").shape = {kExperts, kHidden, kFfn};
  source.views_.at(kFolder + "gate_up_proj").bytes -= 4;
  source.views_.at(kFolder + "gate_up_proj_bias").dtype = Dtype::kU8;
  const GptOssTensors tensors(Spec(), 1, 1, source);
  for (const char* name : {"0.down_proj.weight", "0.up_proj.weight", "0.up_proj.bias"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(tensors.Find(kFolder + name).status())) << name;
  }
  EXPECT_TRUE(absl::IsNotFound(tensors.Find("model.norm.weight").status()));
}

TEST(GptOssExperts, CountGateAndUpEachForItself) {
  const auto shape_of = [](const char* name, std::vector<uint64_t> shape) {
    const MatrixShape one = MatrixShapeOf(kFolder + name, shape, true);
    return std::vector<uint64_t>{one.matrices, one.outputs, one.inputs};
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(shape_of("gate_up_proj", {4, 64, 96}), ElementsAre(8, 48, 64));
  EXPECT_THAT(shape_of("down_proj", {4, 48, 64}), ElementsAre(4, 64, 48));
  EXPECT_THAT(shape_of("gate_up_proj_blocks", {4, 96, 2, 16}), ElementsAre(8, 48, 64));
  EXPECT_THAT(shape_of("down_proj_blocks", {4, 64, 3, 16}), ElementsAre(4, 64, 96));
  EXPECT_THAT(shape_of("down_proj_bias", {4, 64}), ElementsAre(0, 0, 0));
  EXPECT_THAT(shape_of("down_proj_scales", {4, 64, 3}), ElementsAre(0, 0, 0));
  EXPECT_THAT(shape_of("7.down_proj.weight", {64, 48}), ElementsAre(1, 64, 48));
}

}  // namespace
}  // namespace strata
