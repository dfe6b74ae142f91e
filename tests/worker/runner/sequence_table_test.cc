#include "worker/runner/sequence_table.h"

#include <gtest/gtest.h>

#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

TEST(KvPool, PagesAreDistinctAndReturnWithTheirLastHolder) {
  const std::vector<uint64_t> pages = {3, 0, 2};
  KvPool pool(pages);
  EXPECT_EQ(pool.groups(), 3u);
  EXPECT_EQ(pool.total(0), 3u);
  EXPECT_EQ(pool.free(1), 0u);
  const PageId a = pool.Allocate(0);
  const PageId b = pool.Allocate(0);
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.free(0), 1u);
  EXPECT_EQ(pool.free(2), 2u);
  pool.Retain(0, a);
  EXPECT_EQ(pool.references(0, a), 2u);
  pool.Release(0, a);
  EXPECT_EQ(pool.free(0), 1u);
  pool.Release(0, a);
  EXPECT_EQ(pool.free(0), 2u);
  const PageId c = pool.Allocate(0);
  const PageId d = pool.Allocate(0);
  EXPECT_NE(c, b);
  EXPECT_NE(d, b);
  EXPECT_NE(c, d);
}

TEST(KvPoolDeathTest, MisuseIsABugOfOurs) {
  const std::vector<uint64_t> pages = {1};
  KvPool pool(pages);
  EXPECT_DEATH(pool.Release(0, 0), "CHECK|references");
  const PageId page = pool.Allocate(0);
  EXPECT_DEATH(pool.Allocate(0), "CHECK|free");
  pool.Release(0, page);
  EXPECT_DEATH(pool.Retain(0, page), "CHECK|references");
}

class SequenceTableTest : public ::testing::Test {
 protected:
  SequenceTableTest() {
    spec_.model = HashModel(2, {{KvKind::kFull, 0}, {KvKind::kWindow, 20}});
    spec_.last_layer = 1;
    spec_.kv_pages = {8, 8};
    pool_ = std::make_unique<KvPool>(spec_.kv_pages);
    shard_ = std::make_unique<HashShard>(spec_);
    table_ = std::make_unique<SequenceTable>(spec_, std::vector<Fingerprint>{FingerprintOf({})},
                                             pool_.get(), shard_.get());
  }

  Sequence* CreateWith(uint64_t number, std::span<const uint32_t> ids) {
    Sequence* sequence = table_->Create("a", number, Greedy());
    EXPECT_TRUE(table_->CheckPages(sequence, static_cast<uint32_t>(ids.size())).ok());
    EXPECT_TRUE(table_->Append(sequence, ids).ok());
    return sequence;
  }

  StageSpec spec_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<HashShard> shard_;
  std::unique_ptr<SequenceTable> table_;
};

TEST_F(SequenceTableTest, FingerprintsAreKnownAtEveryLength) {
  const auto ids = Prompt(50, 1);
  Sequence* sequence = CreateWith(1, ids);
  for (uint32_t length = 0; length <= 50; ++length) {
    EXPECT_EQ(table_->FingerprintAt(*sequence, length),
              FingerprintOf(std::span(ids).first(length)));
  }
  Sequence* fork = table_->Fork(*sequence, "b", 2, 33, Greedy());
  table_->Truncate(sequence, 20);
  EXPECT_EQ(sequence->fingerprint, FingerprintOf(std::span(ids).first(20)));
  for (uint32_t length = 0; length <= 33; ++length) {
    EXPECT_EQ(table_->FingerprintAt(*fork, length), FingerprintOf(std::span(ids).first(length)));
  }
}

TEST_F(SequenceTableTest, CheckPagesAsksForWhatAppendTakes) {
  const auto ids = Prompt(100, 1);
  Sequence* sequence = table_->Create("a", 1, Greedy());
  uint32_t length = 0;
  for (const uint32_t rows : {1u, 14u, 1u, 1u, 16u, 17u, 40u}) {
    EXPECT_TRUE(table_->CheckPages(sequence, rows).ok());
    EXPECT_TRUE(table_->Append(sequence, std::span(ids).subspan(length, rows)).ok());
    length += rows;
    EXPECT_EQ(pool_->free(0), 8 - (length + 15) / 16);
  }
  EXPECT_TRUE(table_->CheckPages(sequence, 128 - length).ok());
  const absl::Status status = table_->CheckPages(sequence, 129 - length);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(status).facts().at("asked"), "3");
  EXPECT_EQ(DetailOf(status).facts().at("free"), "2");
  EXPECT_EQ(DetailOf(status).limit(), "kv_pages=8");
  EXPECT_EQ(ReasonOf(table_->CheckPages(nullptr, 33)), "KV_PAGES");
  EXPECT_TRUE(table_->CheckPages(nullptr, 32).ok());
}

TEST_F(SequenceTableTest, CommitsMoveTheCommittedLengthInOrder) {
  const auto ids = Prompt(64, 1);
  Sequence* sequence = CreateWith(1, std::span(ids).first(16));
  table_->NoteStep(sequence, 3, sequence->length());
  ASSERT_TRUE(table_->Append(sequence, std::span(ids).subspan(16, 32)).ok());
  table_->NoteStep(sequence, 5, sequence->length());
  EXPECT_EQ(sequence->committed_length, 0u);
  table_->Commit(2);
  EXPECT_EQ(sequence->committed_length, 0u);
  table_->Commit(4);
  EXPECT_EQ(sequence->committed_length, 16u);
  EXPECT_EQ(table_->FirstRetained(*sequence, 1), 0u);
  table_->Commit(9);
  EXPECT_EQ(sequence->committed_length, 48u);
  EXPECT_TRUE(sequence->uncommitted.empty());
  EXPECT_EQ(table_->FirstRetained(*sequence, 1), 16u);  // Key 29 is the first one seen.
  EXPECT_EQ(table_->FirstRetained(*sequence, 0), 0u);
  uint32_t group = 9;
  EXPECT_FALSE(table_->WindowsRetained(*sequence, 34, &group));
  EXPECT_EQ(group, 1u);
  EXPECT_TRUE(table_->WindowsRetained(*sequence, 35, &group));
}

TEST_F(SequenceTableTest, ReleaseFreesEverythingAndTheNewestGenerationStays) {
  CreateWith(5, Prompt(40, 1));
  Sequence* other = CreateWith(9, Prompt(10, 2));
  EXPECT_EQ(table_->newest_number(), 9u);
  table_->Release(other);
  EXPECT_EQ(table_->Find("a", 9), nullptr);
  EXPECT_NE(table_->Find("a", 5), nullptr);
  table_->ReleaseIf([](const Sequence&) { return true; });
  EXPECT_EQ(table_->size(), 0u);
  EXPECT_EQ(pool_->free(0), 8u);
  EXPECT_EQ(pool_->free(1), 8u);
  EXPECT_EQ(table_->newest_number(), 9u);
}

}  // namespace
}  // namespace strata
