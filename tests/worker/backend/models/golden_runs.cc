#include "tests/worker/backend/models/golden_runs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace strata::testing {

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

absl::StatusOr<std::unique_ptr<ForwardModel>> TryLoad(Backend* backend, const GoldenModel& model,
                                                      const GoldenFormat& format,
                                                      ForwardOptions options) {
  options.quantize = format.quantize;
  options.activations = format.activations;
  options.context = std::min(options.context, model.spec.context);
  return ForwardModel::Load(backend, model.spec, model.weights, options);
}

std::unique_ptr<ForwardModel> LoadOn(Backend* backend, const GoldenModel& model,
                                     const ForwardOptions& options) {
  auto forward =
      TryLoad(backend, model, {model.name, options.quantize, options.activations}, options);
  EXPECT_TRUE(forward.ok()) << forward.status();
  return *std::move(forward);
}

std::vector<float> LogitsOf(ForwardModel* forward, const std::vector<uint32_t>& ids, uint32_t chunk,
                            uint32_t rotary_variant, const InputEmbeddings& embeddings) {
  auto rows = forward->Run(ids, chunk, rotary_variant, embeddings);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? LogitsOf(*rows) : std::vector<float>();
}

std::vector<float> LogitsOf(ForwardModel* forward, const GoldenCase& one, uint32_t chunk) {
  return LogitsOf(forward, one.AllIds(), chunk, one.rotary_variant, one.embeddings);
}

const GoldenCase& LongestCase(const GoldenModel& model) {
  return *std::max_element(model.cases.begin(), model.cases.end(),
                           [](const GoldenCase& a, const GoldenCase& b) {
                             return a.AllIds().size() < b.AllIds().size();
                           });
}

std::vector<std::vector<float>> RunTogether(ForwardModel* forward,
                                            const std::vector<GoldenCase>& cases,
                                            const std::function<size_t(size_t, size_t)>& rows_of) {
  std::vector<uint32_t> sequences;
  std::vector<std::vector<uint32_t>> ids;
  for (const GoldenCase& one : cases) {
    ids.push_back(one.AllIds());
    sequences.push_back(forward->NewSequence(one.rotary_variant, one.embeddings));
  }
  std::vector<std::vector<float>> together(ids.size());
  std::vector<size_t> at(ids.size(), 0);
  for (size_t step = 0;; ++step) {
    std::vector<ForwardModel::Item> items;
    std::vector<size_t> owners;
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t rows = std::min(rows_of(step, i), ids[i].size() - at[i]);
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
    EXPECT_TRUE(rows.ok()) << rows.status();
    if (!rows.ok()) {
      break;
    }
    for (size_t r = 0; r < rows->size(); ++r) {
      const std::vector<float>& logits = (*rows)[r].logits;
      together[owners[r]].insert(together[owners[r]].end(), logits.begin(), logits.end());
    }
  }
  for (const uint32_t sequence : sequences) {
    forward->Release(sequence);
  }
  return together;
}

void ExpectNoBatchSizeChangesABit(ForwardModel* forward, std::span<const uint32_t> ids,
                                  std::vector<std::vector<float>>* alone) {
  const size_t shared = std::min<size_t>(ids.size() / 2, 20);
  const uint32_t prefix = forward->NewSequence();
  ASSERT_TRUE(forward->Step({{prefix, ids.first(shared), false}}).ok());
  const auto item = [&](size_t i) -> ForwardModel::Item {
    const auto fork = forward->Fork(prefix);
    EXPECT_TRUE(fork.ok()) << fork.status();
    const std::span<const uint32_t> after = ids.subspan(shared);
    return {*fork, after.subspan(i % after.size(), 1)};
  };
  while (alone->size() < kMostTogether) {
    const ForwardModel::Item one = item(alone->size());
    const auto rows = forward->Step({one});
    ASSERT_TRUE(rows.ok()) << rows.status();
    alone->push_back(rows->front().logits);
    forward->Release(one.sequence);
  }
  for (size_t batch = 1; batch <= kMostTogether; ++batch) {
    std::vector<ForwardModel::Item> items;
    for (size_t i = 0; i < batch; ++i) {
      items.push_back(item(i));
    }
    const auto rows = forward->Step(items);
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (size_t i = 0; i < batch; ++i) {
      EXPECT_TRUE(SameBits((*rows)[i].logits, (*alone)[i])) << i << " of " << batch;
      forward->Release(items[i].sequence);
    }
  }
}

std::string TestName(const GoldenFormat& format) {
  std::string name = format.Name();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '/'; }, '_');
  return name;
}

}  // namespace strata::testing
