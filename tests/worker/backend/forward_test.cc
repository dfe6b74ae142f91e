// Golden models on the CPU have the same bits on every instruction set and any number of threads.
// What any backend does is in conformance.
#include "tests/worker/backend/models/forward.h"

#include <gtest/gtest.h>

#include "tests/worker/backend/cpu_backend.h"
#include "tests/worker/backend/models/golden_model.h"
#include "tests/worker/backend/models/golden_runs.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::testing {
namespace {

class GoldenTest : public ::testing::TestWithParam<GoldenFormat> {
 protected:
  const GoldenModel model_ = LoadGoldenModel(GetParam().model);

  // On `backend`, in the format under test.
  std::unique_ptr<ForwardModel> LoadOn(Backend* backend, ForwardOptions options = {}) const {
    options.quantize = GetParam().quantize;
    options.activations = GetParam().activations;
    return strata::testing::LoadOn(backend, model_, options);
  }
};

TEST_P(GoldenTest, ThreadsAndInstructionSetChangeNoBit) {
  const GoldenCase& one = LongestCase(model_);
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
    std::vector<float> first;
    const std::vector<std::string> isas = cpu::MachineIsas();
    for (size_t i = 0; i < isas.size(); ++i) {
      const std::string& isa = isas[i];
      // The first with each number of threads, and each of the others with one of them in turn.
      const std::vector<uint32_t> all = {1, 2, 5};
      for (const uint32_t threads : i == 0 ? all : std::vector<uint32_t>{all[i % all.size()]}) {
        const auto backend = CpuBackendOn(isa, threads);
        const auto forward = LoadOn(backend.get(), {.kv_dtype = kv});
        const std::vector<float> logits = LogitsOf(forward.get(), one, threads == 2 ? 7 : 0);
        if (first.empty()) {
          first = logits;
        }
        EXPECT_TRUE(SameBits(logits, first)) << isa << " with " << threads << " threads";
      }
    }
  }
}

// Each at a position of its own, with a rotary table of its own: threads divide rows and
// heads; two threads are conformance's.
TEST_P(GoldenTest, SequencesThatDecodeTogetherChangeNoBit) {
  for (const uint32_t threads : {1u, 5u}) {
    const auto backend = CpuBackendOn("", threads);
    const auto forward = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16});
    const auto together =
        RunTogether(forward.get(), model_.cases,
                    [](size_t step, size_t i) -> size_t { return step == 0 ? 3 + 2 * i : 1; });
    for (size_t i = 0; i < model_.cases.size(); ++i) {
      EXPECT_TRUE(SameBits(together[i], LogitsOf(forward.get(), model_.cases[i])))
          << model_.cases[i].name << " with " << threads << " threads";
    }
  }
}

// A decode step of 1 to 64 sequences, each with a token of its own. With quantized rows on every
// instruction set, too: each takes rows in numbers of its own. Two threads are conformance's.
TEST_P(GoldenTest, NoBatchSizeChangesABit) {
  std::vector<std::vector<float>> alone;
  std::vector<std::pair<std::string, uint32_t>> computing = {{"", 1}, {"", 5}};
  if (GetParam().activations == v1::ACTIVATIONS_INT8) {
    for (const std::string& isa : cpu::MachineIsas()) {
      computing.emplace_back(isa, 2);
    }
  }
  for (const auto& [isa, threads] : computing) {
    SCOPED_TRACE(isa + " " + std::to_string(threads));
    const auto backend = CpuBackendOn(isa, threads);
    const auto forward =
        LoadOn(backend.get(),
               {.kv_dtype = v1::KV_DTYPE_F16, .kv_tokens = 8192, .max_batch_items = kMostTogether});
    ExpectNoBatchSizeChangesABit(forward.get(), LongestCase(model_).AllIds(), &alone);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, ::testing::ValuesIn(GoldenFormats()),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace strata::testing
