// Requests with input embeddings over real shard runners: what the embeddings, the tokens and
// nothing else say.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/fingerprint.h"
#include "common/limits.h"
#include "common/status.h"
#include "tests/coordinator/engine/runner_stage.h"

namespace strata {
namespace {

constexpr uint32_t kLayers = 3;
const ModelSpec& Model() {
  static const ModelSpec model = testing::HashModel(kLayers);
  return model;
}

std::vector<float> Row(uint32_t salt) {
  std::vector<float> row(Model().hidden);
  std::iota(row.begin(), row.end(), static_cast<float>(salt));
  return row;
}

std::vector<InputEmbedding> Embeddings(const testing::HashInputs& rows) {
  std::vector<InputEmbedding> embeddings;
  for (const auto& [position, values] : rows) {
    std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    const uint64_t link = EmbeddingLink(bytes);
    embeddings.push_back({position, std::move(bytes), link});
  }
  return embeddings;
}

const testing::HashInputs kRows = {{0, Row(3)},  {7, Row(5)},  {15, Row(6)}, {16, Row(7)},
                                   {31, Row(8)}, {32, Row(9)}, {49, Row(1)}};

SessionRequest Request(const std::string& id, const testing::HashInputs& rows,
                       uint32_t max_tokens = 8) {
  SessionRequest request = MakeRequest(id, 50, max_tokens);
  request.prompt.assign(50, 5);
  request.embeddings = Embeddings(rows);
  return request;
}

// Greedy ids from tokens and rows alone: no engine, runner or page table.
std::vector<uint32_t> Expected(const SessionRequest& request, const testing::HashInputs& rows) {
  std::vector<uint32_t> ids = request.prompt;
  std::vector<uint32_t> answer;
  for (uint32_t i = 0; i < request.max_tokens; ++i) {
    const std::vector<float> logits = testing::HashLogits(Model(), ids, rows).back();
    answer.push_back(
        static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    ids.push_back(answer.back());
  }
  return answer;
}

EngineConfig Config(uint32_t stages, uint32_t step_tokens, uint64_t pages = 64) {
  EngineConfig config = MakeConfig(stages, pages);
  config.max_batch_tokens = step_tokens;
  config.prefix_cache = true;
  return config;
}

TEST(EngineEmbeddings, TakeThePlaceOfTokensOnEveryPartitionAndInEveryChunking) {
  const SessionRequest request = Request("a", kRows);
  const std::vector<uint32_t> expected = Expected(request, kRows);
  ASSERT_NE(expected, Expected(request, {}));
  for (uint32_t stages = 1; stages <= kLayers; ++stages) {
    for (const uint32_t step_tokens : {7u, 16u, 512u}) {
      SimCluster cluster(Config(stages, step_tokens), RunnerStages(Model()));
      cluster.Start();
      const auto sink = cluster.Submit(request);
      cluster.RunToEnd();
      ASSERT_TRUE(sink->done.has_value()) << sink->failed.value_or(absl::OkStatus());
      EXPECT_EQ(sink->tokens, expected) << stages << " stages, " << step_tokens;
      cluster.ExpectEmpty();
    }
  }
}

TEST(EngineEmbeddings, OfOneRequestAreNoPrefixOfAnother) {
  testing::HashInputs other = kRows;
  other.at(49) = Row(2);
  for (const bool at_once : {false, true}) {
    SimCluster cluster(Config(2, 512), RunnerStages(Model()));
    cluster.Start();
    std::vector<std::shared_ptr<SinkRecord>> sinks;
    const std::vector<testing::HashInputs> rows = {kRows, kRows, other, {}, kRows, {}};
    for (size_t i = 0; i < rows.size(); ++i) {
      sinks.push_back(cluster.Submit(Request("r" + std::to_string(i), rows[i])));
      if (!at_once) cluster.RunToEnd();
    }
    cluster.RunToEnd();
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(sinks[i]->done.has_value()) << i;
      EXPECT_EQ(sinks[i]->tokens, Expected(Request("", rows[i]), rows[i])) << i;
      // The last one finds the pages of the other one without embeddings.
      EXPECT_EQ(sinks[i]->done->cached_tokens > 0, i == 5) << i;
    }
    EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
    EXPECT_EQ(cluster.Snapshot().counters.prefix_forks_failed, 0u);
  }
}

TEST(EngineEmbeddings, AreSentAgainWhereTheirKvWasLost) {
  SimCluster cluster(Config(2, 16), RunnerStages(Model()));
  cluster.Start();
  const auto sink = cluster.Submit(Request("a", kRows));
  for (int i = 0; i < 30 && sink->tokens.size() < 3; ++i) {
    cluster.AcknowledgeFence();
    for (uint32_t stage = 0; stage <= cluster.stage_count(); ++stage) cluster.Deliver(stage);
  }
  ASSERT_FALSE(sink->ended());
  cluster.stage(0).Restart();
  cluster.BreakLink();
  cluster.RunToEnd();
  ASSERT_TRUE(sink->done.has_value()) << sink->failed.value_or(absl::OkStatus());
  EXPECT_EQ(sink->tokens, Expected(Request("", kRows), kRows));
  EXPECT_GT(cluster.Snapshot().counters.rebuilds, 0u);
  cluster.ExpectEmpty();
}

TEST(EngineEmbeddings, OfPreemptedRequestsAreKept) {
  // Room for one of them to its end.
  SimCluster cluster(Config(2, 512, 9), RunnerStages(Model()));
  cluster.Start();
  SessionRequest less = Request("less", kRows, 60);
  SessionRequest more = Request("more", kRows, 60);
  less.priority = -1;
  const auto a = cluster.Submit(less);
  const auto b = cluster.Submit(more);
  cluster.RunToEnd();
  ASSERT_TRUE(a->done.has_value() && b->done.has_value());
  EXPECT_EQ(a->tokens, Expected(less, kRows));
  EXPECT_EQ(b->tokens, a->tokens);
  EXPECT_GT(cluster.Snapshot().counters.preemptions, 0u);
  cluster.ExpectEmpty();
}

TEST(EngineEmbeddings, ArePartOfAsManyStepsAsTheirBytesNeed) {
  // Rows as they would be of a model that is much wider; the fakes do not look at them.
  constexpr uint32_t kRowBytes = 1u << 16;
  constexpr uint32_t kMany = kMaxInputEmbeddingBytes / kRowBytes;
  EngineConfig config = MakeConfig(1, 4096);
  config.max_batch_tokens = 4096;
  config.context = 8192;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t r = 0; r < 8; ++r) {
    SessionRequest request = MakeRequest("r" + std::to_string(r), kMany, 1);
    for (uint32_t i = 0; i < kMany; ++i) {
      request.embeddings.push_back({i, std::string(kRowBytes, '\0'), kEmbeddingLinkBit | 1});
    }
    sinks.push_back(cluster.Submit(std::move(request)));
  }
  cluster.RunToEnd();
  size_t carried = 0;
  for (const v1::StepFrame& frame : cluster.sent) {
    EXPECT_LT(frame.ByteSizeLong(), kMaxFrameHeaderBytes);
    for (const v1::StepItem& item : frame.items()) carried += item.embedding_rows_size();
  }
  EXPECT_EQ(carried, size_t{8} * kMany);
  for (const auto& sink : sinks) EXPECT_TRUE(sink->ended());
}

TEST(EngineEmbeddings, BeyondThePromptOrOutOfOrderAreRefused) {
  SimCluster cluster(Config(1, 512), RunnerStages(Model()));
  cluster.Start();
  for (const std::vector<uint32_t>& positions :
       {std::vector<uint32_t>{50}, {3, 3}, {4, 3}, {0xffffffffu}}) {
    SessionRequest request = Request("a", {});
    for (const uint32_t position : positions) {
      request.embeddings.push_back(Embeddings({{position, Row(1)}}).front());
    }
    const absl::Status refused =
        cluster.TrySubmit(std::move(request), std::make_shared<SinkRecord>());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DetailOf(refused).reason(), "INPUT_EMBEDDINGS");
  }
}

TEST(EngineEmbeddings, OfAllRequestsTakeNoMoreMemoryThanTheLimit) {
  const uint64_t row_bytes = Row(0).size() * sizeof(float);
  EngineConfig config = Config(1, 512);
  config.max_input_embedding_bytes = 2 * kRows.size() * row_bytes;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  const auto first = cluster.Submit(Request("a", kRows));
  const auto second = cluster.Submit(Request("b", kRows));
  const absl::Status refused =
      cluster.TrySubmit(Request("c", {{0, Row(1)}}), std::make_shared<SinkRecord>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refused).reason(), "INPUT_EMBEDDINGS_FULL");
  EXPECT_EQ(DetailOf(refused).limit(),
            "max_input_embeddings=" + std::to_string(config.max_input_embedding_bytes));
  EXPECT_TRUE(cluster.TrySubmit(Request("d", {}), std::make_shared<SinkRecord>()).ok());
  cluster.RunToEnd();
  EXPECT_TRUE(first->done.has_value() && second->done.has_value());
  EXPECT_TRUE(cluster.TrySubmit(Request("e", kRows), std::make_shared<SinkRecord>()).ok());
}

}  // namespace
}  // namespace strata
