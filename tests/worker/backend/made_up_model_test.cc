// Made-up models on the CPU have the same bits on every instruction set, any number of threads, and
// in sequences of several attention spans.
#include "tests/worker/backend/models/made_up_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/worker/backend/cpu_backend.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/golden_runs.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::testing {
namespace {

struct Machine {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ForwardModel> model;
};

Machine LoadOn(const MadeUpModel& model, const std::string& isa, uint32_t threads,
               const ForwardOptions& options) {
  Machine machine;
  machine.backend = CpuBackendOn(isa, threads);
  auto forward = ForwardModel::Load(machine.backend.get(), model.spec(), model, options);
  EXPECT_TRUE(forward.ok()) << forward.status();
  machine.model = *std::move(forward);
  return machine;
}

class MadeUpModelTest : public ::testing::TestWithParam<size_t> {};

TEST_P(MadeUpModelTest, NothingChangesABit) {
  const MadeUpModel model(MadeUpShapes()[GetParam()]);
  const std::vector<uint32_t> ids = SomeIds(90, model.spec().vocab);
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F16, v1::KV_DTYPE_F32}) {
    std::vector<float> first;
    for (const std::string& isa : cpu::MachineIsas()) {
      for (const uint32_t threads : {1u, 5u}) {
        ForwardOptions options;
        options.kv_dtype = kv;
        if (threads == 5) {
          options.cuts = CutEverywhere(static_cast<uint32_t>(model.spec().layers.size()));
        }
        const Machine machine = LoadOn(model, isa, threads, options);
        for (const uint32_t chunk : {0u, 1u, 9u}) {
          const auto rows = machine.model->Run(ids, chunk);
          ASSERT_TRUE(rows.ok()) << rows.status();
          const std::vector<float> logits = LogitsOf(*rows);
          first = first.empty() ? logits : first;
          EXPECT_TRUE(SameBits(logits, first))
              << isa << ", " << threads << " threads, chunks of " << chunk;
        }
      }
    }
  }
}

TEST_P(MadeUpModelTest, RowsWithoutLogitsChangeNoBit) {
  const MadeUpModel model(MadeUpShapes()[GetParam()]);
  const std::vector<uint32_t> ids = SomeIds(90, model.spec().vocab);
  for (const std::string& isa : cpu::MachineIsas()) {
    const Machine machine = LoadOn(model, isa, 3, {});
    const auto whole = machine.model->Run(ids);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const uint32_t sequence = machine.model->NewSequence();
    ASSERT_TRUE(machine.model->Step({{sequence, std::span(ids).first(40), false}}).ok());
    const auto rest = machine.model->Step({{sequence, std::span(ids).subspan(40), true, 47}});
    ASSERT_TRUE(rest.ok()) << rest.status();
    for (size_t row = 87; row < ids.size(); ++row) {
      EXPECT_TRUE(SameBits((*rest)[row - 40].logits, (*whole)[row].logits)) << isa << ", " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MadeUpModelTest,
                         ::testing::Range(size_t{0}, MadeUpShapes().size()));

// Quantized when it is loaded. Rows of several groups, the last of which is not whole, and prompts
// of many blocks of rows.
class WideModelTest : public ::testing::TestWithParam<v1::Quantize> {};

TEST_P(WideModelTest, NoChunkThreadStageOrInstructionSetChangesABit) {
  const MadeUpModel model({.hidden = 320,
                           .heads = 5,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .rotary_dim = 64,
                           .ffn = 550,
                           .seed = 13});
  const std::vector<uint32_t> ids = SomeIds(600, model.spec().vocab);
  std::vector<float> first;
  for (const std::string& isa : cpu::MachineIsas()) {
    for (const uint32_t threads : {1u, 3u}) {
      for (const bool cut : {false, true}) {
        // Slow, and its products are cut and divided as all others are.
        if (isa == "scalar" && cut != (threads == 3)) {
          continue;
        }
        ForwardOptions options;
        options.quantize = GetParam();
        options.activations = v1::ACTIVATIONS_INT8;
        options.max_batch_tokens = 600;
        if (cut) {
          options.cuts = {1};
        }
        const Machine machine = LoadOn(model, isa, threads, options);
        for (const uint32_t chunk : {13u, 128u, 512u, 0u}) {
          const auto rows = machine.model->Run(ids, chunk);
          ASSERT_TRUE(rows.ok()) << rows.status();
          const std::vector<float> logits = LogitsOf(*rows);
          first = first.empty() ? logits : first;
          EXPECT_TRUE(SameBits(logits, first))
              << isa << ", " << threads << " threads, " << (cut ? "cut" : "whole") << ", chunks of "
              << chunk;
        }
        // Few rows, whose products threads begin and end anywhere, within what is quantized too.
        for (const uint32_t chunk : {1u, 5u}) {
          const auto rows = machine.model->Run(std::span(ids).first(50), chunk);
          ASSERT_TRUE(rows.ok()) << rows.status();
          const std::vector<float> logits = LogitsOf(*rows);
          EXPECT_TRUE(
              SameBits(logits, {first.begin(), first.begin() + static_cast<long>(logits.size())}))
              << isa << ", " << threads << " threads, " << (cut ? "cut" : "whole") << ", chunks of "
              << chunk;
        }
      }
    }
  }
  // NaNs would be alike, too.
  EXPECT_TRUE(std::all_of(first.begin(), first.end(), [](float x) { return std::isfinite(x); }));
}

INSTANTIATE_TEST_SUITE_P(Formats, WideModelTest,
                         ::testing::Values(v1::QUANTIZE_INT8, v1::QUANTIZE_INT4),
                         [](const auto& format) {
                           return format.param == v1::QUANTIZE_INT8 ? "Int8" : "Int4";
                         });

constexpr uint32_t kMostNeighbours = 11;

// Past two spans decoding divides one sequence's attention among threads by span, where its heads
// do not; prefill, large batches and single threads do not.
class LongSequenceTest : public ::testing::TestWithParam<MadeUpShape> {};

TEST_P(LongSequenceTest, SpansDividedAmongThreadsChangeNoBit) {
  const MadeUpShape& shape = GetParam();
  const MadeUpModel model(shape);
  const std::vector<uint32_t> ids = SomeIds(1300, shape.vocab);
  const std::span<const uint32_t> all(ids);
  std::vector<float> first;
  for (const uint32_t threads : {1u, 2u, 5u}) {
    const Machine machine = LoadOn(model, "", threads, {.kv_tokens = 8192});
    ForwardModel& forward = *machine.model;
    const uint32_t one = forward.NewSequence();
    for (size_t at = 0; at < 1000; at += 250) {
      ASSERT_TRUE(forward.Step({{one, all.subspan(at, 250), false}}).ok());
    }
    std::vector<float> logits;
    std::vector<uint32_t> neighbours;
    for (uint32_t i = 0; i < kMostNeighbours; ++i) {
      neighbours.push_back(forward.NewSequence());
    }
    for (size_t at = 1000; at < ids.size(); ++at) {
      // With as many short neighbours in the batch as may still be divided, and more.
      std::vector<ForwardModel::Item> items = {{one, all.subspan(at, 1)}};
      for (uint32_t i = 0; i < at % (kMostNeighbours + 1); ++i) {
        items.push_back({neighbours[i], all.subspan(at - 900, 1), false});
      }
      const auto rows = forward.Step(items);
      ASSERT_TRUE(rows.ok()) << rows.status();
      logits.insert(logits.end(), (*rows)[0].logits.begin(), (*rows)[0].logits.end());
    }
    const auto whole = forward.Run(ids, 512);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const std::vector<float> prefilled = LogitsOf(*whole);
    EXPECT_TRUE(SameBits(
        std::vector<float>(prefilled.begin() + 1000 * shape.vocab, prefilled.end()), logits))
        << threads << " threads";
    first = first.empty() ? logits : first;
    EXPECT_TRUE(SameBits(logits, first)) << threads << " threads";
  }
}

std::string LongShapeName(const ::testing::TestParamInfo<MadeUpShape>& info) {
  constexpr const char* kNames[] = {"Full", "Windows", "Latents"};
  return kNames[info.index];
}

std::vector<MadeUpShape> LongShapes() {
  return {{},
          {.layers = 4, .windows = {1100, 0, 513, 1024}, .soft_cap = 1.5f, .final_soft_cap = 3.0f},
          {.heads = 4, .latent = {.rank = 16, .nope_dim = 8, .rope_dim = 4, .value_dim = 12}}};
}

INSTANTIATE_TEST_SUITE_P(Shapes, LongSequenceTest, ::testing::ValuesIn(LongShapes()),
                         LongShapeName);

}  // namespace
}  // namespace strata::testing
