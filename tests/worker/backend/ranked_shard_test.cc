// A stage over ranks of one process: what it refuses, what its pages are, and how it fails.
#include <gtest/gtest.h>

#include <numeric>

#include "common/status.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace strata::testing {
namespace {

std::unique_ptr<Backend> Over(const std::vector<double>& shares) {
  CpuOptions options;
  options.threads = 1;
  for (const double share : shares) {
    options.ranks.push_back({.share = share});
  }
  auto backend = MakeCpuBackend(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

// Of the last of `ids`, behind as many in the pages.
std::vector<float> Logits(Shard* shard, const StageSpec& stage, std::span<const uint32_t> ids,
                          uint32_t position, const std::vector<PageId>& pages) {
  const auto rows = static_cast<uint32_t>(ids.size()) - position;
  const std::vector<PageTableView> tables(stage.kv_pages.size(), {0, pages});
  const std::vector<BatchItem> items = {{0, rows, position, tables}};
  const std::vector<uint32_t> last = {rows - 1};
  std::vector<float> logits(stage.model.vocab);
  EXPECT_TRUE(shard->Begin({rows, ids.subspan(position), items}).ok());
  EXPECT_TRUE(shard->Embed().ok());
  for (uint32_t layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    EXPECT_TRUE(shard->Attention(layer).ok());
    EXPECT_TRUE(shard->Mlp(layer).ok());
  }
  EXPECT_TRUE(shard->Head(last).ok());
  EXPECT_TRUE(shard->ReadLogits(logits).ok());
  return logits;
}

std::vector<uint32_t> Ids(size_t count) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 3);
  return ids;
}

class RankedShardTest : public ::testing::Test {
 protected:
  std::unique_ptr<Shard> Load(const std::vector<double>& shares) {
    backends_.push_back(Over(shares));
    auto shard = backends_.back()->Load(stage_.spec, model_, nullptr, nullptr);
    EXPECT_TRUE(shard.ok()) << shard.status();
    return *std::move(shard);
  }

  const MadeUpModel model_{{.heads = 6, .kv_heads = 2}};
  const MadeUpStage stage_ = WholeModel(model_);
  std::vector<std::unique_ptr<Backend>> backends_;
};

TEST_F(RankedShardTest, PagesAreThoseOfOneRankAndGoFromOneToTheOther) {
  const std::vector<uint32_t> ids = Ids(22);
  const std::vector<PageId> here = {1, 3};
  const std::vector<PageId> there = {5, 2};
  const auto one = Load({});
  const std::vector<float> expected = Logits(one.get(), stage_.spec, ids, 0, here);
  // As many KV heads as ranks, and fewer: two ranks have the second.
  for (const std::vector<double>& shares : {std::vector<double>{1, 1}, {2, 1, 1}}) {
    const auto ranked = Load(shares);
    ASSERT_EQ(ranked->PageBytes(0), one->PageBytes(0));
    EXPECT_EQ(Logits(ranked.get(), stage_.spec, ids, 0, there), expected);
    std::vector<uint8_t> of_one(one->PageBytes(0));
    std::vector<uint8_t> of_ranks(one->PageBytes(0));
    for (size_t i = 0; i < here.size(); ++i) {
      ASSERT_TRUE(one->ReadPage(0, here[i], of_one).ok());
      ASSERT_TRUE(ranked->ReadPage(0, there[i], of_ranks).ok());
      EXPECT_EQ(of_one, of_ranks);
    }
    // A stage that was one rank's goes on over several.
    const auto taken = Load(shares);
    for (size_t i = 0; i < here.size(); ++i) {
      ASSERT_TRUE(one->ReadPage(0, here[i], of_one).ok());
      ASSERT_TRUE(taken->WritePage(0, there[i], of_one).ok());
    }
    EXPECT_EQ(Logits(taken.get(), stage_.spec, ids, 21, there), expected);
  }
}

TEST_F(RankedShardTest, MoreRanksThanThereIsToDivideComputeTheSame) {
  const std::vector<uint32_t> ids = Ids(9);
  const std::vector<PageId> pages = {7};
  const auto one = Load({});
  const std::vector<float> expected = Logits(one.get(), stage_.spec, ids, 0, pages);
  const auto eight = Load({1, 1, 1, 1, 1, 1, 1, 1});  // Of 40 outputs, which are three panels.
  EXPECT_EQ(Logits(eight.get(), stage_.spec, ids, 0, pages), expected);
  const auto uneven = Load({1000, 1});
  EXPECT_EQ(Logits(uneven.get(), stage_.spec, ids, 0, pages), expected);
}

TEST_F(RankedShardTest, AfterARefusedCallTheNextStepIsComputed) {
  const std::vector<uint32_t> ids = Ids(9);
  const std::vector<PageId> pages = {7};
  const auto ranked = Load({1, 2});
  const std::vector<float> expected = Logits(ranked.get(), stage_.spec, ids, 0, pages);
  EXPECT_EQ(ReasonOf(ranked->Attention(99)), "SHARD_MISUSE");
  EXPECT_EQ(ReasonOf(ranked->Mlp(99)), "SHARD_MISUSE");
  EXPECT_EQ(Logits(ranked.get(), stage_.spec, ids, 0, pages), expected);
}

TEST(RankedBackendTest, RanksThatCannotBeAreRefused) {
  const auto reason = [](const CpuOptions& options) {
    const auto backend = MakeCpuBackend(options);
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
    return ReasonOf(backend.status());
  };
  EXPECT_EQ(reason({.ranks = std::vector<CpuRank>(9)}), "RANKS_INVALID");
  EXPECT_EQ(reason({.ranks = {{.share = 1}, {.share = 0}}}), "RANKS_INVALID");
  EXPECT_EQ(reason({.pin = "on", .ranks = {{}, {}}}), "RANKS_INVALID");
  EXPECT_EQ(reason({.ranks = {{.threads = 1000}, {.threads = 1000}}}), "THREADS_INVALID");
}

TEST(RankedBackendTest, ItSaysHowManyThreadsAllRanksHave) {
  const auto backend = MakeCpuBackend({.ranks = {{.threads = 2}, {.threads = 1}}});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->facts().threads, 3u);
}

}  // namespace
}  // namespace strata::testing
