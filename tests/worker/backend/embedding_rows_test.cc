// MiniCPM-o's language model with the embeddings of what it hears and sees in place of tokens,
// through the step protocol: runners of two stages on the CPU backend give the reference's logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "tests/worker/backend/models/golden_model.h"
#include "tests/worker/runner/chain.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace strata::testing {
namespace {

// The golden model's layers on two runners.
class TwoStages {
 public:
  explicit TwoStages(const GoldenModel& model) {
    auto backend = MakeCpuBackend({.threads = 1});
    EXPECT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    const auto layers = static_cast<uint32_t>(model.spec.layers.size());
    rotary_ = MakeRotaryTables(model.spec, 256);
    for (uint32_t stage = 0; stage < 2; ++stage) {
      StageSpec spec;
      spec.model = model.spec;
      spec.first_layer = stage == 0 ? 0 : 1;
      spec.last_layer = stage == 0 ? 0 : layers - 1;
      spec.embeds = stage == 0;
      spec.heads = stage == 1;
      spec.context = 256;
      spec.kv_pages = {32};
      spec.kv_dtype = v1::KV_DTYPE_F32;
      spec.max_batch_tokens = 256;
      spec.max_batch_items = 4;
      spec.rotary = rotary_;
      auto shard = backend_->Load(spec, model.weights, nullptr, nullptr);
      EXPECT_TRUE(shard.ok()) << shard.status();
      shards_.push_back(*std::move(shard));
      runners_.push_back(std::make_unique<ShardRunner>(
          ShardRunnerConfig{"node", kDeployment, kEpoch, stage, 2, spec, kDigest, kClass},
          shards_.back().get(), &clock_));
    }
  }

  ResultMessage Run(v1::StepItem item) {
    StepMessage frame;
    frame.header.set_deployment(kDeployment);
    frame.header.set_epoch(kEpoch);
    frame.header.set_step(++step_);
    frame.header.set_committed_step(step_ - 1);
    frame.header.set_rows(static_cast<uint32_t>(item.token_ids_size()));
    *frame.header.add_items() = std::move(item);
    auto sent = runners_[0]->Step(std::move(frame));
    EXPECT_TRUE(sent.ok()) << sent.status();
    auto result = runners_[1]->Step(std::get<StepMessage>(*std::move(sent)));
    EXPECT_TRUE(result.ok()) << result.status();
    return std::get<ResultMessage>(*std::move(result));
  }

 private:
  FakeClock clock_;
  std::unique_ptr<Backend> backend_;
  std::vector<float> rotary_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<ShardRunner>> runners_;
  uint64_t step_ = 0;
};

TEST(EmbeddingRows, GiveTheReferencesLogitsThroughTheStepProtocol) {
  const GoldenModel model = LoadGoldenModel("minicpm-o");
  TwoStages stages(model);
  uint64_t generation = 0;
  size_t with_embeddings = 0;
  for (const GoldenCase& one : model.cases) {
    with_embeddings += one.embeddings.empty() ? 0 : 1;
    const std::vector<uint32_t> ids = one.AllIds();
    const std::vector<float> expected = model.expected.Floats(one.name + ".logits");
    const v1::SequenceName name = Name(one.name, ++generation);
    Fingerprint fingerprint = FingerprintOf({});
    std::vector<float> logits;
    for (uint32_t at = 0; at < ids.size(); at += 33) {
      const uint32_t end = std::min<uint32_t>(at + 33, static_cast<uint32_t>(ids.size()));
      v1::StepItem item = Item(name, ids, at, end);
      item.set_fingerprint(fingerprint);
      item.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
      for (uint32_t i = at; i < end; ++i) {
        uint64_t link = ids[i];
        if (const auto row = one.embeddings.find(i); row != one.embeddings.end()) {
          *item.add_embedding_rows() = EmbeddingRowAt(i, row->second);
          link = item.embedding_rows(item.embedding_rows_size() - 1).digest();
        }
        fingerprint = FingerprintLink(fingerprint, link);
      }
      const ResultMessage result = stages.Run(std::move(item));
      ASSERT_FALSE(result.header.items(0).has_error())
          << result.header.items(0).error().ShortDebugString();
      logits.insert(logits.end(), result.payload.begin(), result.payload.end());
    }
    ASSERT_EQ(logits.size(), expected.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(logits[i], expected[i], 5e-4) << one.name << ", value " << i;
    }
  }
  EXPECT_EQ(with_embeddings, 2u);
}

}  // namespace
}  // namespace strata::testing
