// Whole models in blocks: with float activations bit for bit what their dequantized weights give,
// and with integer ones the same bits however they are computed.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker/backend/cpu_backend.h"
#include "tests/worker/backend/models/block_model.h"
#include "tests/worker/backend/models/forward.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::testing {
namespace {

std::vector<float> Logits(const BlockModel& model, ForwardOptions options,
                          const std::string& isa = "", uint32_t chunk = 0) {
  options.context = 64;
  options.kv_tokens = 128;
  const std::unique_ptr<Backend> backend = CpuBackendOn(isa, 2);
  auto forward = ForwardModel::Load(backend.get(), model.spec(), model, options);
  EXPECT_TRUE(forward.ok()) << forward.status();
  if (!forward.ok()) {
    return {};
  }
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 20; ++i) {
    ids.push_back((i * i + 5) % model.spec().vocab);
  }
  const auto rows = (*forward)->Run(ids, chunk);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? LogitsOf(*rows) : std::vector<float>();
}

TEST(BlockModels, FloatActivationsGiveTheBitsOfTheDequantizedModel) {
  for (const BlockCase& one : BlockCases()) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(std::string(DtypeName(one.dtype)) + (tied ? " tied" : ""));
      const std::vector<float> got = Logits(BlockModel(one, tied, false), {});
      EXPECT_EQ(got, Logits(BlockModel(one, tied, true), {}));
      EXPECT_FALSE(got.empty());
    }
  }
}

TEST(BlockModels, ExpertsGiveTheBitsOfTheDequantizedModelToo) {
  for (const BlockCase& one : BlockCases()) {
    SCOPED_TRACE(DtypeName(one.dtype));
    const BlockModel model(one, false, false, 5);
    const std::vector<float> got = Logits(model, {});
    EXPECT_FALSE(got.empty());
    EXPECT_EQ(got, Logits(BlockModel(one, false, true, 5), {}));
    const ForwardOptions integers{.activations = v1::ACTIVATIONS_INT8};
    const std::vector<float> rounded = Logits(model, integers);
    EXPECT_NE(rounded, got);
    for (const std::string& isa : cpu::MachineIsas()) {
      EXPECT_EQ(Logits(model, integers, isa), rounded) << isa;
    }
    EXPECT_EQ(Logits(model, integers, "", 7), rounded);
  }
}

TEST(BlockModels, IntegerActivationsAreNearAndTheSameBitsEverywhere) {
  const ForwardOptions options{.activations = v1::ACTIVATIONS_INT8};
  for (const BlockCase& one : BlockCases()) {
    SCOPED_TRACE(DtypeName(one.dtype));
    const BlockModel model(one, false, false);
    const std::vector<float> got = Logits(model, options);
    const std::vector<float> exact = Logits(model, {});
    ASSERT_EQ(got.size(), exact.size());
    EXPECT_NE(got, exact);
    float largest = 0, furthest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(exact[i]));
      furthest = std::max(furthest, std::abs(got[i] - exact[i]));
    }
    EXPECT_LT(furthest, 0.1f * largest);
    for (const std::string& isa : cpu::MachineIsas()) {
      EXPECT_EQ(Logits(model, options, isa), got) << isa;
    }
    for (const uint32_t chunk : {1u, 7u}) {
      EXPECT_EQ(Logits(model, options, "", chunk), got) << chunk;
    }
    ForwardOptions cut = options;
    cut.cuts = {1};
    EXPECT_EQ(Logits(model, cut), got);
  }
}

}  // namespace
}  // namespace strata::testing
