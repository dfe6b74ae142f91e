// Weights of each format are loaded and computed near what they stand for, or refused by a typed
// error before anything is packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/checkpoint/checkpoint.h"
#include "tests/worker/backend/conformance/conforming_backends.h"
#include "tests/worker/backend/models/block_model.h"
#include "tests/worker/backend/models/golden_runs.h"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;

class FormatConformance : public BackendConformance {
 protected:
  // Empty where the backend refuses the model by a typed error.
  std::vector<float> Logits(const ModelSpec& spec, const TensorSource& weights,
                            ForwardOptions options) {
    options.context = 64;
    options.kv_tokens = 128;
    const auto forward = ForwardModel::Load(backend_.get(), spec, weights, options);
    if (!forward.ok()) {
      EXPECT_TRUE(IsRefusal(forward.status()));
      return {};
    }
    return LogitsOf(forward->get(), SomeIds(20, spec.vocab));
  }
};

// Whether each is within `share` of the largest of the other ones.
void ExpectNear(const std::vector<float>& got, const std::vector<float>& exact, float share) {
  ASSERT_FALSE(exact.empty());
  float largest = 0;
  for (const float x : exact) {
    largest = std::max(largest, std::abs(x));
  }
  EXPECT_LE(LargestDifference(got, exact), share * largest);
}

TEST_P(FormatConformance, BlocksAreLoadedOrRefused) {
  for (const BlockCase& one : BlockCases()) {
    for (const uint32_t experts : {0u, 5u}) {
      SCOPED_TRACE(std::string(DtypeName(one.dtype)) + (experts == 0 ? "" : " experts"));
      const BlockModel plain(one, false, true, experts);
      const BlockModel model(one, false, false, experts);
      const std::vector<float> exact = Logits(plain.spec(), plain, {});
      const std::vector<float> floats = Logits(model.spec(), model, {});
      if (!floats.empty()) {
        ExpectNear(floats, exact, 1e-4f);
      }
      const std::vector<float> integers =
          Logits(model.spec(), model, {.activations = v1::ACTIVATIONS_INT8});
      // A row of a mixture may get other experts where activations are rounded.
      if (!integers.empty() && experts == 0) {
        ExpectNear(integers, exact, 0.1f);
      }
    }
  }
}

TEST_P(FormatConformance, FloatsAreLoadedAsTheyAreAndQuantizedOrRefused) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    const MadeUpModel model({.hidden = 64,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 16,
                             .rotary_dim = 16,
                             .ffn = 96,
                             .dtype = dtype});
    const std::vector<double> plain = model.PlainLogits(SomeIds(20, model.spec().vocab));
    const std::vector<float> exact(plain.begin(), plain.end());
    for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
      for (const v1::Activations activations : {v1::ACTIVATIONS_F32, v1::ACTIVATIONS_INT8}) {
        SCOPED_TRACE(std::string(DtypeName(dtype)) + " " + v1::Quantize_Name(quantize) + " " +
                     v1::Activations_Name(activations));
        const std::vector<float> got =
            Logits(model.spec(), model, {.quantize = quantize, .activations = activations});
        if (!got.empty()) {
          ExpectNear(got, exact,
                     quantize == v1::QUANTIZE_NONE   ? 1e-4f
                     : quantize == v1::QUANTIZE_INT8 ? 0.05f
                                                     : 0.5f);
        }
      }
    }
  }
}

TEST_P(FormatConformance, ChecksTensorsBeforeItPacks) {
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const auto load = [&](auto edit) {
    MadeUpModel model({});
    edit(model);
    bool packing = false;
    const MadeUpStage stage = WholeModel(model);
    const absl::Status status =
        backend_->Load(stage.spec, model, nullptr, [&](uint64_t, uint64_t) { packing = true; })
            .status();
    EXPECT_FALSE(packing);
    EXPECT_THAT(status.message(), HasSubstr(name));
    return status.code();
  };
  EXPECT_EQ(load([&](MadeUpModel& m) { m.Remove(name); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(load([&](MadeUpModel& m) {
              m.Edit(name).shape = {50, 40};
            }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(load([&](MadeUpModel& m) { m.Edit(name).bytes -= 2; }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(load([&](MadeUpModel& m) { m.Edit(name).dtype = Dtype::kI8; }),
            absl::StatusCode::kUnimplemented);
}

TEST_P(FormatConformance, ReportsProgressToTheEnd) {
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  uint64_t last = 0;
  uint64_t total = 0;
  uint64_t calls = 0;
  const auto shard = backend_->Load(stage.spec, model, nullptr, [&](uint64_t done, uint64_t all) {
    EXPECT_GE(done, last);
    EXPECT_TRUE(calls == 0 || all == total);
    last = done;
    total = all;
    ++calls;
  });
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ(last, total);
  EXPECT_GT(calls, 10u);
  uint64_t stored = 0;
  for (const StageTensor& tensor : TensorsOf(model.spec(), 0, 1, true, true)) {
    stored += model.Find(tensor.name)->bytes;
  }
  EXPECT_EQ(total, stored);
}

INSTANTIATE_TEST_SUITE_P(Backends, FormatConformance, ::testing::ValuesIn(ConformingBackends()),
                         KindName);

}  // namespace
}  // namespace strata::testing
