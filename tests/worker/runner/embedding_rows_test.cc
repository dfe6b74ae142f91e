// Rows of input embeddings in place of tokens: what each stage gets of them, and that they are part
// of what the fence compares.
#include <map>

#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

class EmbeddingRows : public ::testing::TestWithParam<uint32_t> {
 protected:
  static std::vector<float> Row(uint32_t salt) {
    std::vector<float> row;
    for (uint32_t i = 0; i < kHashHidden; ++i) {
      row.push_back(static_cast<float>(salt) + 0.25f * static_cast<float>(i));
    }
    return row;
  }
  Fingerprint FingerprintAt(uint32_t length) const {
    Fingerprint fingerprint = FingerprintOf({});
    for (uint32_t i = 0; i < length; ++i) {
      const auto row = rows_.find(i);
      fingerprint = FingerprintLink(
          fingerprint, row == rows_.end() ? ids_[i] : EmbeddingRowAt(i, row->second).digest());
    }
    return fingerprint;
  }
  v1::StepItem ItemOf(const v1::SequenceName& name, uint32_t position, uint32_t end) const {
    v1::StepItem item = Item(name, ids_, position, end);
    for (auto row = rows_.lower_bound(position); row != rows_.end() && row->first < end; ++row) {
      *item.add_embedding_rows() = EmbeddingRowAt(row->first, row->second);
    }
    item.set_fingerprint(FingerprintAt(position));
    return item;
  }
  uint32_t Expected(uint32_t length) const {
    return Argmax(HashLogits(chain_.options().model, std::span(ids_).first(length), rows_).back());
  }

  const std::vector<uint32_t> ids_ = Prompt(60, 1);
  const HashInputs rows_ = {{0, Row(3)},  {4, Row(5)},  {5, Row(6)},
                            {16, Row(7)}, {31, Row(8)}, {40, Row(9)}};
  Chain chain_{{.stages = GetParam()}};
  Steps steps_{&chain_};
};

TEST_P(EmbeddingRows, TakeThePlaceOfTokensInEveryChunking) {
  EXPECT_NE(Expected(60), Argmax(HashLogits(chain_.options().model, ids_).back()));
  uint64_t generation = 0;
  for (const uint32_t chunk : {1u, 5u, 16u, 60u}) {
    const v1::SequenceName name = Name("a", ++generation);
    for (uint32_t at = 0; at < 60; at += chunk) {
      const uint32_t end = std::min(at + chunk, 60u);
      EXPECT_EQ(TokenOf(steps_.Run({ItemOf(name, at, end)})), Expected(end)) << chunk;
    }
  }
}

TEST_P(EmbeddingRows, GoOnWithoutTheirValuesBehindTheFirstStage) {
  steps_.Run({ItemOf(Name("a", 1), 0, 20)});
  for (uint32_t stage = 0; stage + 1 < GetParam(); ++stage) {
    const v1::StepItem& item = chain_.sent(stage).header.items(0);
    ASSERT_EQ(item.embedding_rows_size(), 4);
    for (const v1::EmbeddingRow& row : item.embedding_rows()) {
      EXPECT_TRUE(row.values().empty());
      EXPECT_EQ(row.digest(), EmbeddingRowAt(0, rows_.at(row.position())).digest());
    }
  }
}

TEST_P(EmbeddingRows, ArePartOfTheFingerprint) {
  steps_.Run({ItemOf(Name("a", 1), 0, 20)});
  // As if they had been tokens.
  v1::StepItem tokens = ItemOf(Name("a", 1), 20, 21);
  tokens.set_fingerprint(FingerprintOf(std::span(ids_).first(20)));
  EXPECT_EQ(ReasonOfItem(steps_.Run({tokens})), "FINGERPRINT_MISMATCH");
  EXPECT_EQ(TokenOf(steps_.Run({ItemOf(Name("a", 1), 20, 21)})), Expected(21));
}

TEST_P(EmbeddingRows, AreForkedAndTruncatedWithTheirPositions) {
  steps_.Run({ItemOf(Name("a", 1), 0, 50)});
  v1::StepCommand fork = Fork(Name("a", 1), Name("b", 2), std::span(ids_).first(20));
  fork.mutable_fork()->set_fingerprint(FingerprintAt(20));
  v1::StepCommand truncate = Truncate(Name("a", 1), std::span(ids_).first(6));
  truncate.mutable_truncate()->set_fingerprint(FingerprintAt(6));
  const ResultMessage result =
      steps_.Run({ItemOf(Name("b", 2), 20, 35), ItemOf(Name("a", 1), 6, 17)}, {fork, truncate});
  EXPECT_EQ(ReasonOfCommand(result, 0), "");
  EXPECT_EQ(ReasonOfCommand(result, 1), "");
  EXPECT_EQ(TokenOf(result, 0), Expected(35));
  EXPECT_EQ(TokenOf(result, 1), Expected(17));
  EXPECT_EQ(TokenOf(steps_.Run({ItemOf(Name("a", 1), 17, 60)})), Expected(60));
}

// A token where an embedding was before the Truncate.
TEST_P(EmbeddingRows, AreForgottenWhenTheyAreCutOff) {
  steps_.Run({ItemOf(Name("a", 1), 0, 41)});
  v1::StepCommand truncate = Truncate(Name("a", 1), std::span(ids_).first(40));
  truncate.mutable_truncate()->set_fingerprint(FingerprintAt(40));
  v1::StepItem item = ItemOf(Name("a", 1), 40, 44);
  item.clear_embedding_rows();
  HashInputs without = rows_;
  without.erase(40);
  EXPECT_EQ(TokenOf(steps_.Run({item}, {truncate})),
            Argmax(HashLogits(chain_.options().model, std::span(ids_).first(44), without).back()));
}

TEST_P(EmbeddingRows, ThatMakeNoSenseAreRefusedAloneAndChangeNothing) {
  const std::vector<std::pair<const char*, std::function<void(v1::StepItem*)>>> changes = {
      {"position", [](v1::StepItem* i) { i->mutable_embedding_rows(3)->set_position(20); }},
      {"order", [](v1::StepItem* i) { i->mutable_embedding_rows()->SwapElements(1, 2); }},
      {"twice", [](v1::StepItem* i) { *i->add_embedding_rows() = i->embedding_rows(3); }},
      {"no digest", [](v1::StepItem* i) { i->mutable_embedding_rows(0)->clear_digest(); }},
      {"digest",
       [](v1::StepItem* i) {
         i->mutable_embedding_rows(0)->set_digest(i->embedding_rows(0).digest() ^ 1);
       }},
      {"size", [](v1::StepItem* i) { i->mutable_embedding_rows(0)->mutable_values()->pop_back(); }},
      {"no values", [](v1::StepItem* i) { i->mutable_embedding_rows(0)->clear_values(); }},
      {"not finite",
       [](v1::StepItem* i) {
         std::vector<float> row = Row(1);
         row[2] = std::numeric_limits<float>::infinity();
         *i->mutable_embedding_rows(0) = EmbeddingRowAt(0, row);
       }},
  };
  uint64_t generation = 0;
  for (const auto& [what, change] : changes) {
    v1::StepItem bad = ItemOf(Name("a", ++generation), 0, 20);
    change(&bad);
    const v1::StepItem good = ItemOf(Name("a", ++generation), 0, 20);
    const ResultMessage result = steps_.Run({bad, good});
    EXPECT_EQ(ReasonOfItem(result, 0), "EMBEDDING_ROWS") << what;
    EXPECT_EQ(result.header.items(0).error_stage(), 0u);
    EXPECT_EQ(TokenOf(result, 1), Expected(20)) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, EmbeddingRows, ::testing::Values(1u, 2u, 6u));

}  // namespace
}  // namespace strata
