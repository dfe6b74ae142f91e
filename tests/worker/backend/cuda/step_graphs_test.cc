// Steps of few rows on an emulated device, as graphs of launches, against those of the CPU.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;

class StepGraphs : public ::testing::Test {
 protected:
  // Models on the CPU, and on a device whose streams work in this order.
  void Load(const MadeUpShape& shape, const ForwardOptions& options, uint64_t order = 0) {
    const MadeUpModel model(shape);
    counts_ = {};
    backends_.push_back(*MakeCpuBackend({.threads = 1}));
    backends_.push_back(*cuda::MakeBackendOn(
        cuda::MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = order, .graphs = &counts_})));
    forwards_.clear();
    for (size_t i = backends_.size() - 2; i < backends_.size(); ++i) {
      auto forward = ForwardModel::Load(backends_[i].get(), model.spec(), model, options);
      ASSERT_TRUE(forward.ok()) << forward.status();
      forwards_.push_back(*std::move(forward));
    }
    ids_ = SomeIds(2000, shape.vocab);
  }
  // A new sequence, the same of both.
  uint32_t NewSequence() {
    const uint32_t sequence = forwards_[0]->NewSequence();
    EXPECT_EQ(forwards_[1]->NewSequence(), sequence);
    return sequence;
  }
  struct Rows {
    uint32_t sequence = 0;
    size_t count = 1;
  };
  // A step of the next ids of these sequences.
  void ExpectSameStep(const std::vector<Rows>& rows, const std::string& what) {
    std::vector<std::vector<float>> logits;
    for (const auto& forward : forwards_) {
      std::vector<ForwardModel::Item> items;
      for (const Rows& one : rows) {
        items.push_back({one.sequence,
                         std::span(ids_).subspan(forward->length(one.sequence), one.count), true,
                         static_cast<uint32_t>(one.count) - 1});
      }
      const auto got = forward->Step(items);
      ASSERT_TRUE(got.ok()) << got.status();
      logits.push_back(LogitsOf(*got));
    }
    ASSERT_EQ(logits[0].size(), logits[1].size());
    EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)), 0)
        << what;
  }

  cuda::GraphCounts counts_;
  std::vector<std::unique_ptr<Backend>> backends_;  // Outlive what is loaded on them.
  std::vector<std::unique_ptr<ForwardModel>> forwards_;
  std::vector<uint32_t> ids_;
};

TEST_F(StepGraphs, HaveTheBitsOfTheCpuWhateverBatchesFollowOnOneAnother) {
  for (MadeUpShape shape :
       {MadeUpShape{}, MadeUpShape{.windows = {16, 0}, .soft_cap = 20, .sinks = true},
        MadeUpShape{.experts = 4, .router = {.used = 2}}}) {
    for (const uint64_t order : {0, 1, 5}) {
      for (const std::vector<uint32_t>& cuts : {std::vector<uint32_t>{}, {1}}) {
        Load(shape,
             {.quantize = v1::QUANTIZE_INT8, .activations = v1::ACTIVATIONS_INT8, .cuts = cuts},
             order);
        const uint32_t one = NewSequence();
        const uint32_t other = NewSequence();
        ExpectSameStep({{one, 20}, {other, 9}}, "prompts");
        EXPECT_EQ(counts_.launched, 0u) << "many rows are launched one by one";
        for (int round = 0; round < 2; ++round) {
          for (int i = 0; i < 4; ++i) {
            ExpectSameStep({{one}}, "one row");
          }
          for (int i = 0; i < 4; ++i) {
            ExpectSameStep({{other}, {one}}, "a row of each");
          }
          for (int i = 0; i < 3; ++i) {
            ExpectSameStep({{one, 2}}, "two rows of one");
          }
        }
        // Each kind of step was once launched kernel by kernel. The last stage launches twice where
        // it has a graph: the harness reads the residual stream, then logits. Of two rows of which
        // one has logits the last layer goes by itself.
        const uint64_t of_last = 2 * 16 - 2 * 2;
        const uint64_t of_all = 22 - 3;
        EXPECT_EQ(counts_.launched, cuts.empty() ? of_last + 5 : of_last + of_all);
        EXPECT_EQ(counts_.recorded, cuts.empty() ? 5u : 4u + 3u);
      }
    }
  }
}

TEST_F(StepGraphs, FollowASequenceOverSpansOfKeys) {
  Load({.layers = 1,
        .hidden = 16,
        .heads = 1,
        .kv_heads = 1,
        .head_dim = 16,
        .rotary_dim = 16,
        .ffn = 16},
       {});
  const uint32_t sequence = NewSequence();
  for (const size_t rows : {500, 500, 16}) {
    ExpectSameStep({{sequence, rows}}, "the prompt");
  }
  for (int i = 0; i < 16; ++i) {  // From 1017 keys to 1032.
    ExpectSameStep({{sequence}}, "step " + std::to_string(i));
  }
  // Of up to 1024 keys, and of more; the residual stream and the logits.
  EXPECT_EQ(counts_.recorded, 2u * 2);
  EXPECT_EQ(counts_.launched, 2u * 14);
}

TEST_F(StepGraphs, AreMadeAnewOnceKeysAndValuesAreInAnotherPlace) {
  Load({}, {});
  for (const uint32_t tokens : {4096u, 256u, 8192u}) {
    for (const auto& forward : forwards_) {
      ASSERT_TRUE(forward->ResizeKv(tokens).ok());
    }
    const uint32_t sequence = NewSequence();
    for (int i = 0; i < 5; ++i) {
      ExpectSameStep({{sequence}}, std::to_string(tokens) + " tokens");
    }
  }
  EXPECT_EQ(counts_.recorded, 3u * 2);
  EXPECT_EQ(counts_.launched, 3u * 2 * 4);
}

// Were anything of the load put on the stream of kernels, it would become part of the graph.
TEST_F(StepGraphs, AreRecordedWhileAnotherThreadLoadsAStage) {
  const std::shared_ptr<cuda::Device> device = cuda::MakeEmulatedDevice(kDeviceBytes);
  const std::unique_ptr<Backend> backend = *cuda::MakeBackendOn(device);
  const std::unique_ptr<Backend> cpu = *MakeCpuBackend({.threads = 1});
  const MadeUpModel model({.layers = 2});
  std::unique_ptr<ForwardModel> loaded;
  const auto graph = device->RecordGraph([&] {
    std::thread([&] {
      loaded = *ForwardModel::Load(backend.get(), model.spec(), model, {});
    }).join();
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  const cuda::OwnedGraph owned(device.get(), *graph);
  const auto expected = ForwardModel::Load(cpu.get(), model.spec(), model, {});
  ASSERT_TRUE(expected.ok());
  const std::vector<uint32_t> ids = SomeIds(20, model.spec().vocab);
  EXPECT_EQ(LogitsOf(*loaded->Run(ids)), LogitsOf(*(*expected)->Run(ids)));
}

// 23 kinds of launches in turn are more than are kept: only what comes twice running is a graph.
TEST_F(StepGraphs, AreForgottenWhereThereAreTooMany) {
  Load({.layers = 1}, {.max_batch_items = 8});
  std::vector<std::vector<Rows>> batches;
  std::vector<Rows> singles;
  for (uint32_t i = 0; i < 8; ++i) {
    singles.push_back({NewSequence()});
    batches.push_back(singles);
    batches.push_back({{singles[0].sequence, i + 1}});
  }
  for (uint64_t round = 1; round <= 3; ++round) {
    for (const std::vector<Rows>& batch : batches) {
      ExpectSameStep(batch, "a batch of " + std::to_string(batch.size()));
    }
    EXPECT_EQ(counts_.launched, 2 * round);
  }
  for (int i = 0; i < 3; ++i) {
    ExpectSameStep(batches[0], "one row again");
  }
  EXPECT_EQ(counts_.launched, 2u * 3 + 2 * 2);
}

}  // namespace
}  // namespace strata::testing
