// Whole models on the CPU backend: the golden numbers, and the same bits however they are
// computed.
#include "tests/worker/backend/forward.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/worker/backend/golden_model.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/isa.h"

namespace strata::testing {
namespace {

std::unique_ptr<Backend> Cpu(const std::string& isa = "", uint32_t threads = 2) {
  auto backend = MakeCpuBackend({.threads = threads, .isa = isa});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

std::unique_ptr<ForwardModel> LoadOn(Backend* backend, const GoldenModel& model,
                                     const ForwardOptions& options = {}) {
  ForwardOptions fitted = options;
  fitted.context = std::min(options.context, model.spec.context);
  auto forward = ForwardModel::Load(backend, model.spec, model.weights, fitted);
  EXPECT_TRUE(forward.ok()) << forward.status();
  return *std::move(forward);
}

std::vector<float> Logits(ForwardModel* forward, const std::vector<uint32_t>& ids,
                          uint32_t chunk = 0) {
  auto rows = forward->Run(ids, chunk);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? LogitsOf(*rows) : std::vector<float>();
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::abs(a[i] - b[i]);
    largest = d <= largest ? largest : d;  // A NaN stays.
  }
  return largest;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  const GoldenModel model_ = LoadGoldenModel(GetParam());
  const GoldenCase& LongestCase() const {
    return *std::max_element(model_.cases.begin(), model_.cases.end(),
                             [](const GoldenCase& a, const GoldenCase& b) {
                               return a.AllIds().size() < b.AllIds().size();
                             });
  }
};

TEST_P(GoldenTest, LogitsAndGreedyIdsAreTheReferences) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), model_);
  for (const GoldenCase& one : model_.cases) {
    SCOPED_TRACE(one.name);
    const std::vector<float> logits = Logits(forward.get(), one.AllIds());
    const std::vector<float> expected = model_.expected.Floats(one.name + ".logits");
    EXPECT_LE(LargestDifference(logits, expected), 5e-4f);
    const size_t vocab = model_.spec.vocab;
    for (size_t i = 0; i < one.greedy_ids.size(); ++i) {
      const auto row = logits.begin() + (one.prompt_ids.size() - 1 + i) * vocab;
      EXPECT_EQ(std::max_element(row, row + vocab) - row, one.greedy_ids[i]) << "token " << i;
    }
  }
}

TEST_P(GoldenTest, HiddenStatesAreTheReferences) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), model_, {.keep_hidden = true});
  size_t compared = 0;
  for (const GoldenCase& one : model_.cases) {
    if (!model_.expected.Has(one.name + ".hidden.0")) {
      continue;
    }
    const auto rows = forward->Run(one.AllIds());
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (size_t layer = 0; layer <= model_.spec.layers.size(); ++layer) {
      const std::string name =
          one.name + (layer == 0 ? ".embed" : ".hidden." + std::to_string(layer - 1));
      const std::vector<float> expected = model_.expected.Floats(name);
      std::vector<float> got;
      for (const RowResult& row : *rows) {
        const std::vector<float>& from = layer == 0 ? row.embedded : row.hidden[layer - 1];
        got.insert(got.end(), from.begin(), from.end());
      }
      float largest = 0;
      for (const float x : expected) {
        largest = std::max(largest, std::abs(x));
      }
      EXPECT_LE(LargestDifference(got, expected), 2e-5f * largest) << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared > 0, model_.name != "recall");
}

TEST_P(GoldenTest, ChunkingChangesNoBit) {
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
    const auto backend = Cpu();
    const auto forward = LoadOn(backend.get(), model_, {.kv_dtype = kv});
    const std::vector<uint32_t> ids = LongestCase().AllIds();
    const std::vector<float> whole = Logits(forward.get(), ids);
    for (const uint32_t chunk : {1u, 2u, 7u, 16u, 64u}) {
      EXPECT_TRUE(SameBits(Logits(forward.get(), ids, chunk), whole)) << "chunks of " << chunk;
    }
  }
}

TEST_P(GoldenTest, ThreadsAndInstructionSetChangeNoBit) {
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
    std::vector<float> first;
    for (const std::string& isa : cpu::MachineIsas()) {
      for (const uint32_t threads : {1u, 2u, 5u}) {
        const auto backend = Cpu(isa, threads);
        const auto forward = LoadOn(backend.get(), model_, {.kv_dtype = kv});
        const std::vector<float> logits = Logits(forward.get(), ids, threads == 2 ? 7 : 0);
        if (first.empty()) {
          first = logits;
        }
        EXPECT_TRUE(SameBits(logits, first)) << isa << " with " << threads << " threads";
      }
    }
  }
}

TEST_P(GoldenTest, PartitionsChangeNoBit) {
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  const uint32_t layers = static_cast<uint32_t>(model_.spec.layers.size());
  const auto backend = Cpu();
  const auto one = LoadOn(backend.get(), model_, {.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<float> expected = Logits(one.get(), ids);
  for (const std::vector<uint32_t>& cuts :
       {std::vector<uint32_t>{1}, std::vector<uint32_t>{layers - 1}, CutEverywhere(layers)}) {
    const auto cut = LoadOn(backend.get(), model_, {.kv_dtype = v1::KV_DTYPE_F16, .cuts = cuts});
    EXPECT_TRUE(SameBits(Logits(cut.get(), ids, 13), expected)) << cuts.size() + 1 << " stages";
  }
}

TEST_P(GoldenTest, NeighboursInABatchChangeNoBit) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), model_, {.kv_dtype = v1::KV_DTYPE_F16});
  std::vector<std::vector<float>> alone;
  std::vector<std::vector<uint32_t>> ids;
  for (const GoldenCase& one : model_.cases) {
    ids.push_back(one.AllIds());
    alone.push_back(Logits(forward.get(), ids.back()));
  }
  // All at once, each at a pace of its own, joining one after another.
  std::vector<uint32_t> sequences;
  std::vector<size_t> at(ids.size(), 0);
  std::vector<std::vector<float>> together(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    sequences.push_back(forward->NewSequence());
  }
  for (size_t step = 0;; ++step) {
    std::vector<ForwardModel::Item> items;
    std::vector<size_t> owners;
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t pace = i % 3 == 0 ? 1 : 5 + i;
      const size_t rows = step < i ? 0 : std::min(pace, ids[i].size() - at[i]);
      if (rows > 0) {
        items.push_back({sequences[i], std::span(ids[i]).subspan(at[i], rows)});
        owners.insert(owners.end(), rows, i);
        at[i] += rows;
      }
    }
    if (items.empty() && step > ids.size()) {
      break;
    }
    const auto rows = forward->Step(items);
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (size_t r = 0; r < rows->size(); ++r) {
      const std::vector<float>& logits = (*rows)[r].logits;
      together[owners[r]].insert(together[owners[r]].end(), logits.begin(), logits.end());
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(SameBits(together[i], alone[i])) << model_.cases[i].name;
  }
}

TEST_P(GoldenTest, UsedPagesChangeNoBit) {
  const auto backend = Cpu();
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  // As few pages as hold one sequence, so that the second one gets the first one's.
  const uint32_t tokens = static_cast<uint32_t>((ids.size() + 15) / 16 * 16);
  const auto forward =
      LoadOn(backend.get(), model_, {.kv_dtype = v1::KV_DTYPE_F16, .kv_tokens = tokens});
  const std::vector<float> fresh = Logits(forward.get(), ids);
  std::vector<uint32_t> others(ids.rbegin(), ids.rend());
  EXPECT_FALSE(SameBits(Logits(forward.get(), others), fresh));
  EXPECT_TRUE(SameBits(Logits(forward.get(), ids, 5), fresh));
}

TEST_P(GoldenTest, CopiedPagesContinueAlike) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), model_, {.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  const std::span<const uint32_t> all(ids);
  const size_t half = ids.size() / 2;
  const uint32_t one = forward->NewSequence();
  ASSERT_TRUE(forward->Step({{one, all.first(half), false}}).ok());
  const auto copy = forward->Fork(one);
  ASSERT_TRUE(copy.ok()) << copy.status();
  // The first goes another way; the copy must not notice.
  const std::vector<uint32_t> other(ids.rbegin(), ids.rbegin() + 20);
  ASSERT_TRUE(forward->Step({{one, other, false}}).ok());
  const auto rest = forward->Step({{*copy, all.subspan(half)}});
  ASSERT_TRUE(rest.ok()) << rest.status();
  const std::vector<float> whole = Logits(forward.get(), ids);
  EXPECT_TRUE(SameBits(LogitsOf(*rest),
                       std::vector<float>(whole.begin() + half * model_.spec.vocab, whole.end())));
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, ::testing::ValuesIn(GoldenModelNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::testing
