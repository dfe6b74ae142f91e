// What a stage, a batch and KV have to be, and that what they are not is an error: no reason to
// compute something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/worker/backend/conformance/conforming_backends.h"

namespace strata::testing {
namespace {

class StageConformance : public BackendConformance {};

TEST_P(StageConformance, SaysWhatItIs) {
  EXPECT_TRUE(GetParam().name.starts_with(backend_->name())) << backend_->name();
  // A version of its own numerics, or of those of another whose bits it computes; of MLX's with the
  // device and the library's version.
  EXPECT_THAT(backend_->numerics(),
              ::testing::MatchesRegex("(cpu|cuda)-[0-9]+|mlx-[0-9]+[.][a-z0-9_]+[.][0-9.]+"));
}

TEST_P(StageConformance, RefusesStagesThatContradictThemselves) {
  const MadeUpModel model({});
  const auto expect = [&](auto edit) {
    MadeUpStage stage = WholeModel(model);
    edit(stage.spec);
    EXPECT_EQ(backend_->Supports(stage.spec).code(), absl::StatusCode::kInvalidArgument);
  };
  expect([](StageSpec& s) { s.last_layer = 2; });
  expect([](StageSpec& s) { s.first_layer = 2; });
  expect([](StageSpec& s) { s.context = 0; });
  expect([](StageSpec& s) { s.max_batch_tokens = 0; });
  expect([](StageSpec& s) { s.kv_pages = {}; });
  expect([](StageSpec& s) { s.kv_pages = {uint64_t{1} << 40}; });
  expect([](StageSpec& s) { s.rotary = s.rotary.first(s.rotary.size() - 1); });
  expect([](StageSpec& s) { s.model.layers[1].attention.rope.theta = 5e5; });  // A second table.
  expect([](StageSpec& s) { s.model.layers[0].attention.kv_heads = 4; });
  expect([](StageSpec& s) { s.model.layers[0].attention.rope.rotary_dim = 26; });
  expect([](StageSpec& s) { s.model.layers[0].attention.kv_group = 1; });
  expect([](StageSpec& s) { s.model.layers[0].attention.query_growth = 0.1f; });  // Every 0.
  expect([](StageSpec& s) { s.model.kv_groups[0] = {KvKind::kWindow, 0}; });
  expect([](StageSpec& s) { s.model.kv_groups[0] = {KvKind::kFull, 16}; });
  expect([](StageSpec& s) { s.model.layers[0].mlp.activation = ActivationKind::kClampedSilu; });
  expect([](StageSpec& s) { s.model.layers[0].mlp.experts = 8; });  // Of which none is used.
  expect([](StageSpec& s) {
    s.model.layers[0].mlp.experts = 8;
    s.model.layers[0].mlp.router.used = 9;
  });
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  expect([](StageSpec& s) { s.model.layers[1].attention.soft_cap = -1; });
  expect([](StageSpec& s) { s.model.layers[1].attention.soft_cap = kNan; });
  expect([](StageSpec& s) { s.model.final_soft_cap = -1; });
  expect([](StageSpec& s) { s.model.final_soft_cap = INFINITY; });
}

// Logits after `ids`, of which those before `position` are in the pages already.
std::vector<float> LogitsAfter(Shard* shard, std::span<const uint32_t> ids, uint32_t position,
                               const std::vector<PageId>& pages, uint32_t vocab) {
  const auto rows = static_cast<uint32_t>(ids.size()) - position;
  const std::vector<PageTableView> tables = {{0, pages}};
  const std::vector<BatchItem> items = {{0, rows, position, tables}};
  const std::vector<uint32_t> last = {rows - 1};
  std::vector<float> logits(vocab);
  EXPECT_TRUE(shard->Begin({rows, ids.subspan(position), items}).ok());
  EXPECT_TRUE(shard->Embed().ok());
  for (const uint32_t layer : {0u, 1u}) {
    EXPECT_TRUE(shard->Attention(layer).ok());
    EXPECT_TRUE(shard->Mlp(layer).ok());
  }
  EXPECT_TRUE(shard->Head(last).ok());
  EXPECT_TRUE(shard->ReadLogits(logits).ok());
  return logits;
}

TEST_P(StageConformance, PagesThatAreReadAndWrittenElsewhereAreTheSame) {
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  const auto one = *backend_->Load(stage.spec, model, nullptr, nullptr);
  const auto other = *backend_->Load(stage.spec, model, nullptr, nullptr);
  if (one->PageBytes(0) == 0) {
    std::vector<uint8_t> page;
    EXPECT_FALSE(one->ReadPage(0, 0, page).ok());
    EXPECT_FALSE(one->WritePage(0, 0, page).ok());
    GTEST_SKIP() << "it gives no pages away";
  }
  std::vector<uint32_t> ids(22);
  std::iota(ids.begin(), ids.end(), 3);
  const std::vector<PageId> here = {1, 3};
  const std::vector<PageId> there = {5, 2};
  const uint32_t vocab = stage.spec.model.vocab;
  LogitsAfter(one.get(), std::span(ids).first(21), 0, here, vocab);
  std::vector<uint8_t> page(one->PageBytes(0));
  for (size_t i = 0; i < here.size(); ++i) {
    ASSERT_TRUE(one->ReadPage(0, here[i], page).ok());
    ASSERT_TRUE(other->WritePage(0, there[i], page).ok());
  }
  EXPECT_EQ(LogitsAfter(one.get(), ids, 21, here, vocab),
            LogitsAfter(other.get(), ids, 21, there, vocab));
  EXPECT_EQ(one->PageBytes(7), 0u);
  EXPECT_FALSE(one->ReadPage(0, 64, page).ok());  // No such page.
  EXPECT_FALSE(one->ReadPage(1, 0, page).ok());
  EXPECT_FALSE(one->ReadPage(0, 0, std::span(page).first(page.size() - 1)).ok());
  EXPECT_FALSE(one->WritePage(0, 0, std::span(page).first(page.size() - 1)).ok());
}

TEST_P(StageConformance, BatchesThatDoNotFitAreErrors) {
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  const auto shard = *backend_->Load(stage.spec, model, nullptr, nullptr);
  std::vector<uint32_t> ids(33, 1);
  std::vector<PageId> pages = {0, 1, 2};
  const std::vector<PageTableView> tables = {{0, pages}};
  const auto begin = [&](BatchItem item, uint32_t rows) {
    const std::vector<BatchItem> items = {item};
    return shard->Begin({rows, std::span(ids).first(rows), items});
  };
  EXPECT_TRUE(begin({0, 32, 16, tables}, 32).ok());
  EXPECT_FALSE(begin({0, 33, 0, tables}, 33).ok());   // Too many rows.
  EXPECT_FALSE(begin({1, 4, 0, tables}, 4).ok());     // A hole.
  EXPECT_FALSE(begin({0, 4, 0, tables}, 5).ok());     // Rows without an item.
  EXPECT_FALSE(begin({0, 32, 17, tables}, 32).ok());  // One page too few.
  EXPECT_FALSE(begin({0, 1, 256, tables}, 1).ok());   // Past the context.
  pages[1] = 64;
  EXPECT_FALSE(begin({0, 17, 0, tables}, 17).ok());  // No such page.
  EXPECT_FALSE(shard->CopyPage(0, 0, 64).ok());
  EXPECT_FALSE(shard->Attention(2).ok());
  pages[1] = 1;
  const std::vector<BatchItem> items = {{0, 4, 0, tables}};
  const auto attention_of = [&](uint32_t layer, const std::vector<uint32_t>& rows) {
    EXPECT_TRUE(shard->Begin({4, std::span(ids).first(4), items}).ok() && shard->Embed().ok());
    return shard->AttentionOfSome(layer, rows);
  };
  EXPECT_TRUE(attention_of(1, {1, 2}).ok());
  EXPECT_TRUE(attention_of(1, {}).ok());
  EXPECT_FALSE(attention_of(0, {1, 2}).ok());  // Not the last layer.
  EXPECT_FALSE(attention_of(1, {3, 4}).ok());  // No such row.
  EXPECT_FALSE(attention_of(1, {2, 1}).ok());  // Not in order.
  EXPECT_FALSE(attention_of(1, {0, 3}).ok());  // A gap.
}

TEST_P(StageConformance, PagesBehindAWindowNeedNotBeThere) {
  const MadeUpModel model({.windows = {20, 0}});
  MadeUpStage stage = WholeModel(model);
  stage.spec.kv_pages = {64, 64};
  const std::unique_ptr<Shard> shard = LoadOrRefuse(model, stage);
  if (shard == nullptr) {
    GTEST_SKIP() << "refused";
  }
  const std::vector<uint32_t> ids(32, 1);
  // Positions 68 and on, which see 49 and on: page 3.
  const auto begin = [&](PageTableView window, PageTableView full, uint32_t rows) {
    const std::vector<PageTableView> tables = {window, full};
    const std::vector<BatchItem> items = {{0, rows, 68, tables}};
    return shard->Begin({rows, std::span(ids).first(rows), items});
  };
  const std::vector<PageId> all = {10, 11, 12, 13, 14, 15, 16};
  const std::span<const PageId> pages(all);
  EXPECT_TRUE(begin({0, pages}, {0, pages}, 32).ok());
  EXPECT_TRUE(begin({3, pages.first(4)}, {0, pages}, 32).ok());
  EXPECT_TRUE(begin({3, pages.first(2)}, {0, pages}, 12).ok());
  EXPECT_FALSE(begin({4, pages.first(4)}, {0, pages}, 32).ok());  // Not where it begins.
  EXPECT_FALSE(begin({3, pages.first(3)}, {0, pages}, 32).ok());  // Nor where it ends.
  EXPECT_FALSE(begin({200, pages.first(3)}, {0, pages}, 32).ok());
  EXPECT_FALSE(begin({3, pages.first(4)}, {1, pages.subspan(1)}, 32).ok());  // The other sees all.
  std::vector<PageId> gone = {1000, 1000, 1000, 13, 14, 15, 16};
  EXPECT_TRUE(begin({0, gone}, {0, pages}, 32).ok());
  EXPECT_FALSE(begin({0, pages}, {0, gone}, 32).ok());
  gone[4] = 64;
  EXPECT_FALSE(begin({0, gone}, {0, pages}, 32).ok());
}

TEST_P(StageConformance, ResizedKvHasItsNewPagesAndNoOthers) {
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  const auto shard = *backend_->Load(stage.spec, model, nullptr, nullptr);
  const uint64_t bytes = shard->MemoryBytes();
  const std::vector<uint32_t> ids(4, 1);
  const auto begin = [&](PageId page) {
    const std::vector<PageId> pages = {page};
    const std::vector<PageTableView> tables = {{0, pages}};
    const std::vector<BatchItem> items = {{0, 4, 0, tables}};
    return shard->Begin({4, ids, items});
  };
  EXPECT_TRUE(begin(63).ok());
  const std::vector<uint64_t> more = {128};
  ASSERT_TRUE(shard->ResizeKv(more).ok());
  EXPECT_GT(shard->MemoryBytes(), bytes);
  EXPECT_TRUE(begin(127).ok());
  const std::vector<uint64_t> impossible = {uint64_t{1} << 40};
  EXPECT_TRUE(absl::IsResourceExhausted(shard->ResizeKv(impossible)));
  EXPECT_FALSE(begin(0).ok());
  EXPECT_LT(shard->MemoryBytes(), bytes);
  const std::vector<uint64_t> as_before = {64};
  ASSERT_TRUE(shard->ResizeKv(as_before).ok());
  EXPECT_EQ(shard->MemoryBytes(), bytes);
  EXPECT_TRUE(begin(63).ok());
  EXPECT_FALSE(begin(64).ok());
}

TEST_P(StageConformance, TheLargestLogitIsTheFirstOfTheLargest) {
  const MadeUpModel model({});
  const MadeUpStage stage = WholeModel(model);
  const std::unique_ptr<Shard> shard = LoadOrRefuse(model, stage);
  if (shard == nullptr || !shard->FindsLargest()) {
    GTEST_SKIP() << "who reads logits finds it";
  }
  constexpr uint32_t kRows = 20;
  const size_t hidden = model.spec().hidden;
  const size_t vocab = model.spec().vocab;
  const std::vector<PageId> pages = {0, 1};
  const std::vector<PageTableView> tables = {{0, pages}};
  const std::vector<BatchItem> items = {{0, kRows, 0, tables}};
  const std::vector<uint32_t> ids(kRows, 1);
  std::vector<float> residual(kRows * hidden);
  for (size_t i = 0; i < residual.size(); ++i) {
    residual[i] = static_cast<float>((i * 7919) % 1009) / 504 - 1;
  }
  constexpr uint32_t kEqual = 3;  // All its logits are the same.
  constexpr uint32_t kNan = 5;    // As its logits are.
  std::fill_n(residual.begin() + kEqual * hidden, hidden, 0.0f);
  residual[kNan * hidden] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(shard->Begin({kRows, ids, items}).ok());
  ASSERT_TRUE(shard->SetResidual(residual).ok());
  std::vector<uint32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0u);
  std::vector<float> logits(kRows * vocab);
  ASSERT_TRUE(shard->Head(rows).ok() && shard->ReadLogits(logits).ok());
  std::vector<RowLargest> largest(kRows);
  ASSERT_TRUE(shard->Head(rows).ok() && shard->ReadLargest(largest).ok());
  for (uint32_t row = 0; row < kRows; ++row) {
    SCOPED_TRACE(row);
    EXPECT_EQ(largest[row].usable, row != kNan);
    const auto begin = logits.begin() + static_cast<ptrdiff_t>(row * vocab);
    if (row != kNan) {
      EXPECT_EQ(largest[row].token_id, std::max_element(begin, begin + vocab) - begin);
    }
  }
  EXPECT_EQ(largest[kEqual].token_id, 0u);
  EXPECT_FALSE(shard->ReadLargest(std::span(largest).first(2)).ok());
}

TEST_P(StageConformance, MeasuresTheMachine) {
  const auto measured = backend_->MeasureSpeed(0.1, uint64_t{64} << 20);
  ASSERT_TRUE(measured.ok()) << measured.status();
  const DeviceSpeed& speed = *measured;
  EXPECT_GT(speed.read_bytes_per_s, 0);
  EXPECT_LT(speed.read_bytes_per_s, 1e14);
  EXPECT_GT(speed.flops_per_s, 0);
  EXPECT_LT(speed.flops_per_s, 1e16);
}

INSTANTIATE_TEST_SUITE_P(Backends, StageConformance, ::testing::ValuesIn(ConformingBackends()),
                         KindName);

}  // namespace
}  // namespace strata::testing
