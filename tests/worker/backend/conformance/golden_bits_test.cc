// A row of a golden model has the same bits however the model and its rows are divided.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "common/limits.h"
#include "tests/worker/backend/conformance/conforming_backends.h"
#include "tests/worker/backend/models/golden_digests.h"
#include "tests/worker/backend/models/golden_runs.h"

namespace strata::testing {
namespace {

class GoldenBits : public GoldenConformance {};

TEST_P(GoldenBits, ChunkingChangesNoBit) {
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
    const auto forward = Load({.kv_dtype = kv});
    const GoldenCase& one = LongestCase(model_);
    const std::vector<float> whole = LogitsOf(forward.get(), one);
    for (const uint32_t chunk : {1u, 2u, 7u, 16u, 64u}) {
      EXPECT_TRUE(SameBits(LogitsOf(forward.get(), one, chunk), whole)) << "chunks of " << chunk;
    }
  }
}

TEST_P(GoldenBits, PartitionsChangeNoBit) {
  const GoldenCase& one = LongestCase(model_);
  const uint32_t layers = static_cast<uint32_t>(model_.spec.layers.size());
  const auto whole = Load({.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<float> expected = LogitsOf(whole.get(), one);
  for (const std::vector<uint32_t>& cuts :
       {std::vector<uint32_t>{1}, std::vector<uint32_t>{layers - 1}, CutEverywhere(layers)}) {
    const auto cut = Load({.kv_dtype = v1::KV_DTYPE_F16, .cuts = cuts});
    EXPECT_TRUE(SameBits(LogitsOf(cut.get(), one, 13), expected)) << cuts.size() + 1 << " stages";
  }
}

TEST_P(GoldenBits, NeighboursInABatchChangeNoBit) {
  const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16});
  // All at once, each at a pace of its own, joining one after another.
  const auto together =
      RunTogether(forward.get(), model_.cases, [](size_t step, size_t i) -> size_t {
        return step < i ? 0 : i % 3 == 0 ? 1 : 5 + i;
      });
  for (size_t i = 0; i < model_.cases.size(); ++i) {
    EXPECT_TRUE(SameBits(together[i], LogitsOf(forward.get(), model_.cases[i])))
        << model_.cases[i].name;
  }
}

// Each at a position of its own, with a rotary table of its own.
TEST_P(GoldenBits, SequencesThatDecodeTogetherChangeNoBit) {
  const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16});
  const auto together =
      RunTogether(forward.get(), model_.cases,
                  [](size_t step, size_t i) -> size_t { return step == 0 ? 3 + 2 * i : 1; });
  for (size_t i = 0; i < model_.cases.size(); ++i) {
    EXPECT_TRUE(SameBits(together[i], LogitsOf(forward.get(), model_.cases[i])))
        << model_.cases[i].name;
  }
}

TEST_P(GoldenBits, NoBatchSizeChangesABit) {
  const auto forward =
      Load({.kv_dtype = v1::KV_DTYPE_F16, .kv_tokens = 8192, .max_batch_items = kMostTogether});
  std::vector<std::vector<float>> alone;
  ExpectNoBatchSizeChangesABit(forward.get(), LongestCase(model_).AllIds(), &alone);
}

// Of two sequences in a batch the one wants its last rows' logits or, now and then, none, and the
// other those of its second half.
TEST_P(GoldenBits, RowsWithoutLogitsChangeNoBit) {
  const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<uint32_t> ids = LongestCase(model_).AllIds();
  const std::vector<float> whole = LogitsOf(forward.get(), ids);
  const size_t vocab = model_.spec.vocab;
  const auto is_that_of_the_whole = [&](const RowResult& row, size_t position) {
    const auto begin = whole.begin() + static_cast<ptrdiff_t>(position * vocab);
    return SameBits(row.logits, {begin, begin + static_cast<ptrdiff_t>(vocab)});
  };
  for (const size_t chunk : {1, 2, 7, 33}) {
    const std::array<uint32_t, 2> sequences = {forward->NewSequence(), forward->NewSequence()};
    size_t compared = 0;
    for (size_t at = 0; at < ids.size(); at += chunk) {
      const auto rows = static_cast<uint32_t>(std::min(chunk, ids.size() - at));
      const std::span<const uint32_t> part = std::span(ids).subspan(at, rows);
      const uint32_t last = at / chunk % 3 == 1 ? rows : rows - 1;
      const auto got =
          forward->Step({{sequences[0], part, true, last}, {sequences[1], part, true, rows / 2}});
      ASSERT_TRUE(got.ok()) << got.status();
      for (uint32_t row = 0; row < 2 * rows; ++row) {
        if (row >= rows + rows / 2 || (row >= last && row < rows)) {
          EXPECT_TRUE(is_that_of_the_whole((*got)[row], at + row % rows)) << at << ", " << row;
          ++compared;
        }
      }
    }
    EXPECT_GE(compared, ids.size() / 2) << "chunks of " << chunk;
    forward->Release(sequences[0]);
    forward->Release(sequences[1]);
  }
}

// Rows that are kept of two items stand behind one another, and belong to two sequences.
TEST_P(GoldenBits, AnswersBesideAPartWithoutLogitsChangeNoBit) {
  const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<uint32_t> ids = LongestCase(model_).AllIds();
  const std::vector<uint32_t> others(ids.rbegin(), ids.rend());
  const std::array<size_t, 2> lengths = {ids.size() / 2, ids.size() / 3};
  std::vector<std::vector<float>> alone;
  std::vector<ForwardModel::Item> items;
  for (const size_t length : lengths) {
    const std::vector<uint32_t>& of = items.empty() ? ids : others;
    const std::vector<float> whole =
        LogitsOf(forward.get(), std::vector(of.begin(), of.begin() + length + 1));
    alone.emplace_back(whole.end() - model_.spec.vocab, whole.end());
    const uint32_t sequence = forward->NewSequence();
    ASSERT_TRUE(forward->Step({{sequence, std::span(of).first(length), false}}).ok());
    items.push_back({sequence, std::span(of).subspan(length, 1)});
  }
  items.push_back({forward->NewSequence(), std::span(ids).first(9), false});
  const auto rows = forward->Step(items);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(SameBits((*rows)[i].logits, alone[i])) << i;
  }
}

// Pages, and whoever had them before.

TEST_P(GoldenBits, UsedPagesChangeNoBit) {
  const std::vector<uint32_t> ids = LongestCase(model_).AllIds();
  // As few pages as hold one sequence, so that the second one gets the first one's.
  // With windows the harness keeps a page besides.
  const bool windows = std::any_of(model_.spec.kv_groups.begin(), model_.spec.kv_groups.end(),
                                   [](const KvGroupSpec& group) { return group.window != 0; });
  const uint32_t tokens =
      static_cast<uint32_t>((ids.size() + 15) / 16 * 16) + (windows ? kPageTokens : 0);
  const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16, .kv_tokens = tokens});
  const std::vector<float> fresh = LogitsOf(forward.get(), ids);
  std::vector<uint32_t> others(ids.rbegin(), ids.rend());
  EXPECT_FALSE(SameBits(LogitsOf(forward.get(), others), fresh));
  EXPECT_TRUE(SameBits(LogitsOf(forward.get(), ids, 5), fresh));
}

// The first goes another way; the copy must not notice.
TEST_P(GoldenBits, CopiedPagesContinueAlike) {
  const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<uint32_t> ids = LongestCase(model_).AllIds();
  const std::span<const uint32_t> all(ids);
  const size_t half = ids.size() / 2;
  const uint32_t one = forward->NewSequence();
  ASSERT_TRUE(forward->Step({{one, all.first(half), false}}).ok());
  const auto copy = forward->Fork(one);
  ASSERT_TRUE(copy.ok()) << copy.status();
  const std::vector<uint32_t> other(ids.rbegin(), ids.rbegin() + 20);
  ASSERT_TRUE(forward->Step({{one, other, false}}).ok());
  const auto rest = forward->Step({{*copy, all.subspan(half)}});
  ASSERT_TRUE(rest.ok()) << rest.status();
  const std::vector<float> whole = LogitsOf(forward.get(), ids);
  EXPECT_TRUE(SameBits(LogitsOf(*rest),
                       std::vector<float>(whole.begin() + half * model_.spec.vocab, whole.end())));
}

// A sequence that gave up its pages half way, and is computed again from its first token in other
// chunks, behind one that wrote over them.
TEST_P(GoldenBits, APreemptedSequenceContinuesAlike) {
  const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<uint32_t> ids = LongestCase(model_).AllIds();
  const std::span<const uint32_t> all(ids);
  const std::vector<float> whole = LogitsOf(forward.get(), ids);
  const size_t half = ids.size() / 2;
  const uint32_t preempted = forward->NewSequence();
  ASSERT_TRUE(forward->Step({{preempted, all.first(half), false}}).ok());
  forward->Release(preempted);
  const uint32_t other = forward->NewSequence();
  const std::vector<uint32_t> others(ids.rbegin(), ids.rend());
  ASSERT_TRUE(forward->Step({{other, others, false}}).ok());
  const uint32_t again = forward->NewSequence();
  ASSERT_TRUE(forward->Step({{again, all.first(half / 2), false}}).ok());
  ASSERT_TRUE(forward->Step({{again, all.subspan(half / 2, half - half / 2), false}}).ok());
  const auto rest = forward->Step({{again, all.subspan(half)}});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_TRUE(SameBits(LogitsOf(*rest),
                       std::vector<float>(whole.begin() + half * model_.spec.vocab, whole.end())));
}

TEST_P(GoldenBits, ResizedKvChangesNoBit) {
  for (const std::vector<uint32_t>& cuts : {std::vector<uint32_t>{}, std::vector<uint32_t>{1}}) {
    const auto forward = Load({.kv_dtype = v1::KV_DTYPE_F16, .cuts = cuts});
    const std::vector<uint32_t> ids = LongestCase(model_).AllIds();
    const std::vector<float> before = LogitsOf(forward.get(), ids);
    const auto least = static_cast<uint32_t>(ids.size() + 2 * kPageTokens);
    for (const uint32_t tokens : {least, 8192u}) {
      const uint32_t half_way = forward->NewSequence();
      ASSERT_TRUE(forward->Step({{half_way, std::span(ids).first(ids.size() / 2), false}}).ok());
      ASSERT_TRUE(forward->ResizeKv(tokens).ok());
      EXPECT_TRUE(SameBits(LogitsOf(forward.get(), ids, 11), before)) << tokens << " tokens";
    }
  }
}

// Of two backends, each of which loads the model anew; and, where tests/golden/bits.json has the
// class, those of everybody who computes in it.
TEST_P(GoldenBits, DigestsAreThoseOfTheNumericsClass) {
  static const GoldenDigests kGolden = ReadGoldenDigests();
  const std::unique_ptr<ForwardModel> first = Load();
  const auto other_backend = std::get<BackendKind>(GetParam()).make();
  ASSERT_TRUE(other_backend.ok()) << other_backend.status();
  const auto second = TryLoad(other_backend->get(), model_, format(), {});
  ASSERT_TRUE(second.ok()) << second.status();
  const auto known =
      kGolden.find(ClassOf(backend_->numerics(), model_, format(), v1::KV_DTYPE_F32));
  for (const GoldenCase& one : model_.cases) {
    const std::string digest = DigestOf(LogitsOf(first.get(), one));
    EXPECT_EQ(DigestOf(LogitsOf(second->get(), one)), digest) << one.name;
    if (known != kGolden.end()) {
      const auto pinned = known->second.find(model_.name + "/" + one.name);
      ASSERT_NE(pinned, known->second.end()) << "tests/golden/bits.json lacks " << one.name;
      EXPECT_EQ(pinned->second, digest) << one.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenBits,
                         ::testing::Combine(::testing::ValuesIn(ConformingBackends()),
                                            ::testing::ValuesIn(GoldenFormats())),
                         KindAndFormatName);

}  // namespace
}  // namespace strata::testing
