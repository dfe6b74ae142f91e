// What the MLX backend must not refuse, what it refuses, and what only it has. What any backend
// does is in conformance.
#include "worker/backend/mlx/mlx_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <map>
#include <thread>

#include "common/status.h"
#include "mlx/memory.h"
#include "mlx/stream.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/golden_model.h"
#include "tests/worker/backend/models/golden_runs.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "worker/backend/mlx/array_formats.h"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Backend> Make(const mlx::MlxOptions& options = {}) {
  auto backend = mlx::MakeBackendOf(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

TEST(MlxBackendTest, NoGoldenModelIsRefused) {
  const auto backend = Make();
  for (const std::string& name : GoldenModelNames()) {
    const GoldenModel model = LoadGoldenModel(name);
    EXPECT_NE(LoadOn(backend.get(), model), nullptr) << name;
  }
}

TEST(MlxBackendTest, ARefusalNamesWhatItIsOf) {
  const auto backend = Make();
  const MadeUpModel model({});
  MadeUpStage stage = WholeModel(model);
  ASSERT_TRUE(backend->Supports(stage.spec).ok());
  stage.spec.activations = v1::ACTIVATIONS_INT8;
  const absl::Status status = backend->Supports(stage.spec);
  EXPECT_EQ(ReasonOf(status), "BACKEND_UNSUPPORTED");
  EXPECT_THAT(Describe(status), HasSubstr("--activations f32"));
}

// As on a GPU: every product has as many rows. The bits are those of one row after another.
TEST(MlxBackendTest, ProductsInBlocksOfRowsGiveTheSameBitsInEveryChunk) {
  const auto any = Make({.row_block = 0});
  const auto blocks = Make({.row_block = 8});
  for (const char* const name :
       {"llama31-mlx4", "gemma2", "mixtral-mlx4", "qwen3-moe", "gpt-oss", "deepseek-v3-mlx4"}) {
    SCOPED_TRACE(name);
    const GoldenModel model = LoadGoldenModel(name);
    const GoldenCase& one = LongestCase(model);
    const std::vector<float> expected = LogitsOf(LoadOn(any.get(), model).get(), one);
    const auto forward = LoadOn(blocks.get(), model);
    for (const uint32_t chunk : {0u, 1u, 7u, 8u, 20u}) {
      const std::vector<float> got = LogitsOf(forward.get(), one, chunk);
      EXPECT_LE(LargestDifference(got, expected), 1e-4f) << chunk;
      EXPECT_TRUE(SameBits(got, LogitsOf(forward.get(), one))) << chunk;
    }
  }
}

// A request of 39 tokens, a second one of as many behind it, and what the context takes more;
// beside another one, after one that was given up, with ids that were used before. On one stage,
// and on four.
TEST(MlxBackendTest, ASecondRequestBehindACacheIsAsAFreshOne) {
  const auto backend = Make();
  for (const char* const name : {"llama31-mlx4", "qwen3-mlx4"}) {
    const GoldenModel model = LoadGoldenModel(name);
    const std::vector<uint32_t> ids =
        SomeIds(std::min(39u + 39 + 500, model.spec.context), model.spec.vocab);
    const uint32_t layers = static_cast<uint32_t>(model.spec.layers.size());
    for (const std::vector<uint32_t>& cuts :
         {std::vector<uint32_t>{}, std::vector<uint32_t>{1}, CutEverywhere(layers)}) {
      SCOPED_TRACE(std::string(name) + " on " + std::to_string(cuts.size() + 1));
      const auto forward = LoadOn(backend.get(), model, {.cuts = cuts});
      const std::vector<float> fresh = LogitsOf(forward.get(), ids);
      const size_t vocab = model.spec.vocab;
      const std::span<const uint32_t> all(ids);
      const uint32_t given_up = forward->NewSequence();
      ASSERT_TRUE(forward->Step({{given_up, all.subspan(100, 77)}}).ok());
      forward->Release(given_up);
      const uint32_t one = forward->NewSequence();
      const uint32_t beside = forward->NewSequence();
      std::vector<float> got;
      const auto step = [&](size_t first, size_t count, bool with) {
        std::vector<ForwardModel::Item> items = {{one, all.subspan(first, count)}};
        if (with) {
          items.push_back({beside, all.subspan(first / 2, 3)});
        }
        const auto rows = forward->Step(items);
        ASSERT_TRUE(rows.ok()) << rows.status();
        for (size_t i = 0; i < count; ++i) {
          got.insert(got.end(), (*rows)[i].logits.begin(), (*rows)[i].logits.end());
        }
      };
      step(0, 39, false);
      step(39, 39, true);
      for (size_t at = 78; at < ids.size(); at += 100) {
        step(at, std::min<size_t>(100, ids.size() - at), at % 200 == 78);
      }
      ASSERT_EQ(got.size(), ids.size() * vocab);
      EXPECT_TRUE(SameBits(got, fresh));
    }
  }
}

// What a step takes goes back, and KV is written where it lies: else each step would take as much
// as all pages.
TEST(MlxBackendTest, StepsTakeNoMemoryThatStays) {
  const auto backend = Make();
  const MadeUpModel model({});
  MadeUpStage stage = WholeModel(model);
  stage.spec.kv_pages = {200'000};
  const auto shard = backend->Load(stage.spec, model, nullptr, nullptr);
  ASSERT_TRUE(shard.ok()) << shard.status();
  const std::vector<uint32_t> ids(4, 1);
  const std::vector<PageId> pages = {7};
  const std::vector<PageTableView> tables = {{0, pages}};
  const std::vector<BatchItem> items = {{0, 4, 0, tables}};
  std::vector<float> logits(model.spec().vocab);
  const std::vector<uint32_t> last = {3};
  const auto step = [&] {
    ASSERT_TRUE((*shard)->Begin({4, ids, items}).ok());
    ASSERT_TRUE((*shard)->Embed().ok());
    for (uint32_t layer = 0; layer < 2; ++layer) {
      ASSERT_TRUE((*shard)->Attention(layer).ok());
      ASSERT_TRUE((*shard)->Mlp(layer).ok());
    }
    ASSERT_TRUE((*shard)->Head(last).ok());
    ASSERT_TRUE((*shard)->ReadLogits(logits).ok());
  };
  step();
  ASSERT_TRUE((*shard)->CopyPage(0, 7, 8).ok());
  const size_t active = ::mlx::core::get_active_memory();
  ::mlx::core::reset_peak_memory();
  for (int i = 0; i < 50; ++i) {
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_TRUE((*shard)->CopyPage(0, 7, 8).ok());
  }
  constexpr size_t kOfTheLastStep = 16 << 10;  // A thread of MLX's may be about to give it back.
  EXPECT_LT(::mlx::core::get_active_memory(), active + kOfTheLastStep);
  const uint64_t kv = 200'000 * 16 * uint64_t{2} * 24 * 2;  // Of keys of one layer.
  EXPECT_LT(::mlx::core::get_peak_memory() - active, kv / 4);
}

// The same tensors in float32.
class AsFloats : public TensorSource {
 public:
  explicit AsFloats(const TensorSource& source) : source_(source) {}

  absl::StatusOr<TensorView> Find(std::string_view name) const override {
    ASSIGN_OR_RETURN(TensorView view, source_.Find(name));
    if (view.dtype == Dtype::kF32) {
      return view;
    }
    std::vector<float>& values = made_[std::string(name)];
    values.resize(view.bytes / sizeof(uint16_t));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = mlx::FloatAt(view, i);
    }
    return TensorView{Dtype::kF32, view.shape, reinterpret_cast<const uint8_t*>(values.data()),
                      values.size() * sizeof(float)};
  }

 private:
  const TensorSource& source_;
  mutable std::map<std::string, std::vector<float>> made_;
};

// Of the last of a few rows.
std::vector<float> LogitsOfOneStep(Shard* shard, const ModelSpec& model) {
  const std::vector<uint32_t> ids = SomeIds(5, model.vocab);
  const std::vector<PageId> pages = {3};
  const std::vector<PageTableView> tables = {{0, pages}};
  const std::vector<BatchItem> items = {{0, 5, 0, tables}};
  const std::vector<uint32_t> last = {4};
  std::vector<float> logits(model.vocab);
  EXPECT_TRUE(shard->Begin({5, ids, items}).ok());
  EXPECT_TRUE(shard->Embed().ok());
  for (uint32_t layer = 0; layer < model.layers.size(); ++layer) {
    EXPECT_TRUE(shard->Attention(layer).ok());
    EXPECT_TRUE(shard->Mlp(layer).ok());
  }
  EXPECT_TRUE(shard->Head(last).ok());
  EXPECT_TRUE(shard->ReadLogits(logits).ok());
  return logits;
}

// Each load of a worker is on a thread of its own, and a stream of MLX is never ended.
TEST(MlxBackendTest, LoadsOnThreadsThatEndLeaveNoStreamsBehind) {
  const auto backend = Make();
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  const auto load = [&] {
    const auto shard = backend->Load(stage.spec, model, nullptr, nullptr);
    ASSERT_TRUE(shard.ok()) << shard.status();
    LogitsOfOneStep(shard->get(), model.spec());
  };
  load();
  // Two at a time need two streams, and no more at the next time.
  const auto load_two = [&] {
    std::latch both(2);
    const auto one = [&] {
      load();
      both.arrive_and_wait();
    };
    std::thread first(one);
    std::thread second(one);
    first.join();
    second.join();
  };
  load_two();
  const size_t streams = ::mlx::core::get_streams().size();
  for (int i = 0; i < 20; ++i) {
    std::thread(load).join();
    load_two();
  }
  EXPECT_EQ(::mlx::core::get_streams().size(), streams);
}

// As Metal says how much its device holds.
TEST(MlxBackendTest, AStageThatTheDeviceDoesNotHoldBesideOthersIsRefused) {
  const MadeUpModel model({});
  MadeUpStage stage = WholeModel(model);
  const auto one = Make()->Load(stage.spec, model, nullptr, nullptr);
  ASSERT_TRUE(one.ok()) << one.status();
  const uint64_t shared = ::mlx::core::get_active_memory() + 2 * (*one)->MemoryBytes();
  const auto backend = Make({.shared_bytes = shared});
  EXPECT_EQ(backend->facts().shared_bytes, shared);
  const auto two = backend->Load(stage.spec, model, nullptr, nullptr);
  ASSERT_TRUE(two.ok()) << two.status();
  const std::vector<uint64_t> pages = stage.spec.kv_pages;
  stage.spec.kv_pages = {100'000};
  const auto three = backend->Load(stage.spec, model, nullptr, nullptr);
  EXPECT_EQ(ReasonOf(three.status()), "MEMORY_EXHAUSTED");
  EXPECT_THAT(Describe(three.status()), HasSubstr("that the GPU holds"));
  // So is more KV of a stage that is there; its own it may have again.
  EXPECT_EQ(ReasonOf((*two)->ResizeKv(stage.spec.kv_pages)), "MEMORY_EXHAUSTED");
  EXPECT_TRUE((*two)->ResizeKv(pages).ok());
}

// A matrix of floats in two bytes lies there as it is stored, and gives the bits of the same in
// four.
TEST(MlxBackendTest, FloatsInTwoBytesGiveTheBitsOfTheSameInFour) {
  const auto backend = Make();
  // More outputs than are widened at once.
  MadeUpShape shape = {
      .hidden = 512, .heads = 4, .kv_heads = 2, .head_dim = 128, .rotary_dim = 128, .ffn = 2600};
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16}) {
    shape.dtype = dtype;
    const MadeUpModel halves(shape);
    const AsFloats floats(halves);
    const auto bytes_and_logits = [&](const TensorSource& weights) {
      MadeUpStage stage = WholeModel(halves);
      const auto shard = backend->Load(stage.spec, weights, nullptr, nullptr);
      EXPECT_TRUE(shard.ok()) << shard.status();
      return std::pair((*shard)->MemoryBytes(), LogitsOfOneStep(shard->get(), halves.spec()));
    };
    const auto [two, from_two] = bytes_and_logits(halves);
    const auto [four, from_four] = bytes_and_logits(floats);
    EXPECT_TRUE(SameBits(from_two, from_four)) << DtypeName(dtype);
    EXPECT_LT(static_cast<double>(two), 0.6 * static_cast<double>(four));
  }
}

}  // namespace
}  // namespace strata::testing
