// Fused experts as backends read them.
#include "worker/backend/expert_views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint64_t kExperts = 3;
constexpr uint64_t kHidden = 8;
constexpr uint64_t kFfn = 4;
const std::string kLayer = "model.layers.0.";

// Floats in memory, each of which is its number.
class Numbered : public TensorSource {
 public:
  void Add(const std::string& name, std::vector<uint64_t> shape) {
    std::vector<float>& values = values_[name];
    size_t count = 1;
    for (const uint64_t n : shape) {
      count *= n;
    }
    for (size_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(i));
    }
    views_[name] = {Dtype::kF32, std::move(shape), reinterpret_cast<const uint8_t*>(values.data()),
                    count * sizeof(float)};
  }
  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override {
    ASSIGN_OR_RETURN(const TensorView view, Find(name));
    return TensorInfo{view.dtype, view.shape, view.bytes, Sha256Hex(std::string(name))};
  }
  absl::Status Prepare(const std::vector<std::string>& names) const override {
    prepared.insert(names.begin(), names.end());
    return absl::OkStatus();
  }
  absl::StatusOr<TensorView> Find(std::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? absl::StatusOr<TensorView>(absl::NotFoundError("no tensor"))
                                 : found->second;
  }
  void Release(std::string_view name, size_t bytes) const override {
    released[std::string(name)] = bytes;
  }
  mutable std::set<std::string> prepared;
  mutable std::map<std::string, size_t> released;

 private:
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, TensorView, std::less<>> views_;
};

ModelSpec Mixture(ExpertNames names) {
  ModelSpec spec;
  spec.hidden = kHidden;
  spec.layers.resize(1);
  MlpSpec& mlp = spec.layers[0].mlp;
  mlp.ffn = kFfn;
  mlp.experts = kExperts;
  mlp.expert_names = names;
  return spec;
}

Numbered Fused() {
  Numbered source;
  source.Add(kLayer + "mlp.experts.gate_up_proj", {kExperts, 2 * kFfn, kHidden});
  source.Add(kLayer + "mlp.experts.down_proj", {kExperts, kHidden, kFfn});
  source.Add(kLayer + "mlp.gate.weight", {kExperts, kHidden});
  return source;
}

float FirstOf(const ExpertViews& views, const std::string& name) {
  const auto view = views.Find(kLayer + name);
  EXPECT_TRUE(view.ok()) << view.status();
  float value = 0;
  std::memcpy(&value, view->data, sizeof(value));
  return value;
}

TEST(ExpertViews, GateIsTheFirstHalfOfAnExpertsRows) {
  const Numbered source = Fused();
  const ExpertViews views(Mixture(ExpertNames::kBlockSparse), 0, 0, source);
  EXPECT_EQ(FirstOf(views, "block_sparse_moe.experts.1.w1.weight"), 2 * kFfn * kHidden);
  EXPECT_EQ(FirstOf(views, "block_sparse_moe.experts.1.w3.weight"), 3 * kFfn * kHidden);
  EXPECT_EQ(FirstOf(views, "block_sparse_moe.experts.2.w2.weight"), 2 * kHidden * kFfn);
  const auto gate = views.Describe(kLayer + "block_sparse_moe.experts.0.w1.weight");
  ASSERT_TRUE(gate.ok()) << gate.status();
  EXPECT_EQ(gate->shape, (std::vector<uint64_t>{kFfn, kHidden}));
  EXPECT_EQ(gate->sources, std::vector{Sha256Hex(kLayer + "mlp.experts.gate_up_proj")});
  EXPECT_NE(gate->sha256, views.Describe(kLayer + "block_sparse_moe.experts.0.w3.weight")->sha256);
  EXPECT_TRUE(views.Find(kLayer + "block_sparse_moe.gate.weight").ok()) << "the router";
}

TEST(ExpertViews, WhatIsStoredIsPreparedOnceAndReleasedAsItsExpertsAre) {
  const Numbered source = Fused();
  const ExpertViews views(Mixture(ExpertNames::kMlp), 0, 0, source);
  const std::string up = kLayer + "mlp.experts.1.up_proj.weight";
  ASSERT_TRUE(views.Prepare({kLayer + "mlp.experts.1.gate_proj.weight", up, "other"}).ok());
  const std::string stored = kLayer + "mlp.experts.gate_up_proj";
  EXPECT_EQ(source.prepared, (std::set<std::string>{stored, "other"}));
  views.Release(up, kFfn * kHidden * sizeof(float));
  EXPECT_EQ(source.released[stored], 4 * kFfn * kHidden * sizeof(float));
}

TEST(ExpertViews, ShapesOfNeitherLayoutAreRefusedByName) {
  Numbered source;
  source.Add(kLayer + "mlp.experts.gate_up_proj", {kExperts, kHidden, 2 * kFfn});
  source.Add(kLayer + "mlp.experts.down_proj", {kExperts, kFfn, kHidden + 1});
  const ExpertViews views(Mixture(ExpertNames::kMlp), 0, 0, source);
  const auto down = views.Describe(kLayer + "mlp.experts.0.down_proj.weight");
  EXPECT_EQ(ReasonOf(down.status()), "TENSOR_SHAPE");
  EXPECT_THAT(std::string(down.status().message()),
              ::testing::HasSubstr("mlp.experts.down_proj has shape [3, 4, 9]"));
}

TEST(ExpertViews, ExpertsThatLieInputsFirstAreTheSources) {
  Numbered source;
  // The first is square, which lies as all others do.
  source.Add(kLayer + "mlp.experts.gate_up_proj", {kExperts, kHidden, 2 * kFfn});
  source.Add(kLayer + "mlp.experts.down_proj", {kExperts, kFfn, kHidden});
  const ExpertViews views(Mixture(ExpertNames::kMlp), 0, 0, source);
  EXPECT_EQ(FirstOf(views, "mlp.experts.0.up_proj.weight"), kFfn * kHidden);
  EXPECT_FALSE(views.Find(kLayer + "mlp.experts.0.down_proj.weight").ok());
}

TEST(ExpertViews, ACorrectionBesideFusedExpertsIsFoundWhereOthersHaveIt) {
  Numbered source = Fused();
  source.Add(kLayer + "mlp.e_score_correction_bias", {kExperts});
  ModelSpec spec = Mixture(ExpertNames::kBlockSparse);
  spec.layers[0].mlp.router.corrected = true;
  const ExpertViews views(spec, 0, 0, source);
  EXPECT_TRUE(views.Find(kLayer + "block_sparse_moe.e_score_correction_bias").ok());
}

TEST(ExpertViews, MlxNamesOfGptOssStackAreRead) {
  Numbered source;
  source.Add(kLayer + "mlp.experts.gate_proj.weight", {kExperts, kFfn, kHidden});
  source.Add(kLayer + "mlp.experts.up_proj.bias", {kExperts, kFfn});
  const ExpertViews views(Mixture(ExpertNames::kGptOss), 0, 0, source);
  EXPECT_TRUE(views.Find(kLayer + "mlp.switch_mlp.gate_proj.weight").ok());
  EXPECT_TRUE(views.Find(kLayer + "mlp.switch_mlp.up_proj.bias").ok());
}

}  // namespace
}  // namespace strata
