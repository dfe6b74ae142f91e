// Whole models on the CPU backend: the golden numbers, and the same bits however they are
// computed.
#include "tests/worker/backend/forward.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

#include "common/limits.h"
#include "tests/worker/backend/cpu_backend.h"
#include "tests/worker/backend/golden_model.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::testing {
namespace {

std::unique_ptr<Backend> Cpu(const std::string& isa = "", uint32_t threads = 2) {
  return CpuBackendOn(isa, threads);
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
                          uint32_t chunk = 0, uint32_t rotary_variant = 0,
                          const InputEmbeddings& embeddings = {}) {
  auto rows = forward->Run(ids, chunk, rotary_variant, embeddings);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? LogitsOf(*rows) : std::vector<float>();
}
std::vector<float> Logits(ForwardModel* forward, const GoldenCase& one, uint32_t chunk = 0) {
  return Logits(forward, one.AllIds(), chunk, one.rotary_variant, one.embeddings);
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

class GoldenTest : public ::testing::TestWithParam<GoldenFormat> {
 protected:
  const GoldenModel model_ = LoadGoldenModel(GetParam().model);

  // On `backend`, in the format under test.
  std::unique_ptr<ForwardModel> LoadOn(Backend* backend, ForwardOptions options = {}) const {
    options.quantize = GetParam().quantize;
    options.activations = GetParam().activations;
    return strata::testing::LoadOn(backend, model_, options);
  }
  const GoldenCase& LongestCase() const {
    return *std::max_element(model_.cases.begin(), model_.cases.end(),
                             [](const GoldenCase& a, const GoldenCase& b) {
                               return a.AllIds().size() < b.AllIds().size();
                             });
  }
};

class ReferenceTest : public GoldenTest {};
class QuantizedTest : public GoldenTest {};

TEST_P(ReferenceTest, LogitsAndGreedyIdsAreTheReferences) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get());
  for (const GoldenCase& one : model_.cases) {
    SCOPED_TRACE(one.name);
    const std::vector<float> logits = Logits(forward.get(), one);
    const std::vector<float> expected = model_.expected.Floats(one.name + ".logits");
    EXPECT_LE(LargestDifference(logits, expected), 5e-4f);
    const size_t vocab = model_.spec.vocab;
    for (size_t i = 0; i < one.greedy_ids.size(); ++i) {
      const auto row = logits.begin() + (one.prompt_ids.size() - 1 + i) * vocab;
      EXPECT_EQ(std::max_element(row, row + vocab) - row, one.greedy_ids[i]) << "token " << i;
    }
  }
}

// Gemma was trained with its embedding's scale rounded to bfloat16, which shows.
TEST(EmbeddingScaleTest, IsPartOfWhatTheReferenceComputes) {
  GoldenModel model = LoadGoldenModel("gemma3");
  const auto rounded = std::find_if(model.all_cases.begin(), model.all_cases.end(),
                                    [](const GoldenCase& one) { return one.embedding_scale != 0; });
  ASSERT_NE(rounded, model.all_cases.end());
  const auto backend = Cpu();
  const std::vector<float> expected = model.expected.Floats(rounded->name + ".logits");
  const auto difference = [&] {
    return LargestDifference(Logits(LoadOn(backend.get(), model).get(), rounded->AllIds()),
                             expected);
  };
  EXPECT_GT(difference(), 5e-3f);
  model.spec.embedding_scale = rounded->embedding_scale;
  EXPECT_LE(difference(), 5e-4f);
}

TEST_P(ReferenceTest, HiddenStatesAreTheReferences) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), {.keep_hidden = true});
  size_t compared = 0;
  for (const GoldenCase& one : model_.cases) {
    if (!model_.expected.Has(one.name + ".hidden.0")) {
      continue;
    }
    const auto rows = forward->Run(one.AllIds(), 0, one.rotary_variant);
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
  // The others were made without, but for files with the results of what they were made of.
  bool without = model_.name == "recall";
  for (const char* kind : {"mlx", "mxfp", "awq", "gptq", "packed", "fp8", "gguf", "fused", "w8a8",
                           "w4a8", "nvfp4", "nf4", "fp4", "bnb8"}) {
    without =
        without || (model_.name.find(kind) != std::string::npos && !model_.name.ends_with("-bf16"));
  }
  EXPECT_EQ(compared > 0, !without);
}

TEST_P(GoldenTest, ChunkingChangesNoBit) {
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
    const auto backend = Cpu();
    const auto forward = LoadOn(backend.get(), {.kv_dtype = kv});
    const GoldenCase& one = LongestCase();
    const std::vector<float> whole = Logits(forward.get(), one);
    for (const uint32_t chunk : {1u, 2u, 7u, 16u, 64u}) {
      EXPECT_TRUE(SameBits(Logits(forward.get(), one, chunk), whole)) << "chunks of " << chunk;
    }
  }
}

TEST_P(GoldenTest, ThreadsAndInstructionSetChangeNoBit) {
  const GoldenCase& one = LongestCase();
  for (const v1::KvDtype kv : {v1::KV_DTYPE_F32, v1::KV_DTYPE_F16}) {
    std::vector<float> first;
    for (const std::string& isa : cpu::MachineIsas()) {
      for (const uint32_t threads : {1u, 2u, 5u}) {
        const auto backend = Cpu(isa, threads);
        const auto forward = LoadOn(backend.get(), {.kv_dtype = kv});
        const std::vector<float> logits = Logits(forward.get(), one, threads == 2 ? 7 : 0);
        if (first.empty()) {
          first = logits;
        }
        EXPECT_TRUE(SameBits(logits, first)) << isa << " with " << threads << " threads";
      }
    }
  }
}

TEST_P(GoldenTest, PartitionsChangeNoBit) {
  const GoldenCase& one = LongestCase();
  const uint32_t layers = static_cast<uint32_t>(model_.spec.layers.size());
  const auto backend = Cpu();
  const auto whole = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<float> expected = Logits(whole.get(), one);
  for (const std::vector<uint32_t>& cuts :
       {std::vector<uint32_t>{1}, std::vector<uint32_t>{layers - 1}, CutEverywhere(layers)}) {
    const auto cut = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16, .cuts = cuts});
    EXPECT_TRUE(SameBits(Logits(cut.get(), one, 13), expected)) << cuts.size() + 1 << " stages";
  }
}

// The logits of all cases, computed in the same steps, rows_of(step, case) of each in every step.
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

TEST_P(GoldenTest, NeighboursInABatchChangeNoBit) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16});
  // All at once, each at a pace of its own, joining one after another.
  const auto together =
      RunTogether(forward.get(), model_.cases, [](size_t step, size_t i) -> size_t {
        return step < i ? 0 : i % 3 == 0 ? 1 : 5 + i;
      });
  for (size_t i = 0; i < model_.cases.size(); ++i) {
    EXPECT_TRUE(SameBits(together[i], Logits(forward.get(), model_.cases[i])))
        << model_.cases[i].name;
  }
}

// Each at a position of its own, with a rotary table of its own: threads divide rows and heads.
TEST_P(GoldenTest, SequencesThatDecodeTogetherChangeNoBit) {
  for (const uint32_t threads : {1u, 2u, 5u}) {
    const auto backend = Cpu("", threads);
    const auto forward = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16});
    const auto together =
        RunTogether(forward.get(), model_.cases,
                    [](size_t step, size_t i) -> size_t { return step == 0 ? 3 + 2 * i : 1; });
    for (size_t i = 0; i < model_.cases.size(); ++i) {
      EXPECT_TRUE(SameBits(together[i], Logits(forward.get(), model_.cases[i])))
          << model_.cases[i].name << " with " << threads << " threads";
    }
  }
}

// Of two sequences in a batch the one wants its last rows' logits or, now and then, none, and the
// other those of its second half.
TEST_P(GoldenTest, RowsWithoutLogitsChangeNoBit) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  const std::vector<float> whole = Logits(forward.get(), ids);
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
TEST_P(GoldenTest, AnswersBesideAPartWithoutLogitsChangeNoBit) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16});
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  const std::vector<uint32_t> others(ids.rbegin(), ids.rend());
  const std::array<size_t, 2> lengths = {ids.size() / 2, ids.size() / 3};
  std::vector<std::vector<float>> alone;
  std::vector<ForwardModel::Item> items;
  for (const size_t length : lengths) {
    const std::vector<uint32_t>& of = items.empty() ? ids : others;
    const std::vector<float> whole =
        Logits(forward.get(), std::vector(of.begin(), of.begin() + length + 1));
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

// A decode step of 1 to 64 sequences, each with a token of its own, by several threads. With
// quantized rows on every instruction set, too: each takes rows in numbers of its own.
TEST_P(GoldenTest, NoBatchSizeChangesABit) {
  constexpr size_t kMost = 64;
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  const size_t shared = std::min<size_t>(ids.size() / 2, 20);
  std::vector<std::vector<float>> alone;
  std::vector<std::pair<std::string, uint32_t>> computing = {{"", 2}, {"", 1}, {"", 5}};
  if (GetParam().activations == v1::ACTIVATIONS_INT8) {
    for (const std::string& isa : cpu::MachineIsas()) {
      computing.emplace_back(isa, 2);
    }
  }
  for (const auto& [isa, threads] : computing) {
    SCOPED_TRACE(isa + " " + std::to_string(threads));
    const auto backend = Cpu(isa, threads);
    const auto forward = LoadOn(
        backend.get(), {.kv_dtype = v1::KV_DTYPE_F16, .kv_tokens = 8192, .max_batch_items = kMost});
    const uint32_t prefix = forward->NewSequence();
    ASSERT_TRUE(forward->Step({{prefix, std::span(ids).first(shared), false}}).ok());
    const auto item = [&](size_t i) -> ForwardModel::Item {
      const auto fork = forward->Fork(prefix);
      EXPECT_TRUE(fork.ok()) << fork.status();
      const std::span<const uint32_t> after = std::span(ids).subspan(shared);
      return {*fork, after.subspan(i % after.size(), 1)};
    };
    while (alone.size() < kMost) {
      const ForwardModel::Item one = item(alone.size());
      const auto rows = forward->Step({one});
      ASSERT_TRUE(rows.ok()) << rows.status();
      alone.push_back(rows->front().logits);
      forward->Release(one.sequence);
    }
    for (size_t batch = 1; batch <= kMost; ++batch) {
      std::vector<ForwardModel::Item> items;
      for (size_t i = 0; i < batch; ++i) {
        items.push_back(item(i));
      }
      const auto rows = forward->Step(items);
      ASSERT_TRUE(rows.ok()) << rows.status();
      for (size_t i = 0; i < batch; ++i) {
        EXPECT_TRUE(SameBits((*rows)[i].logits, alone[i])) << i << " of " << batch;
        forward->Release(items[i].sequence);
      }
    }
  }
}

TEST_P(GoldenTest, UsedPagesChangeNoBit) {
  const auto backend = Cpu();
  const std::vector<uint32_t> ids = LongestCase().AllIds();
  // As few pages as hold one sequence, so that the second one gets the first one's.
  // With windows the harness keeps a page besides.
  const bool windows = std::any_of(model_.spec.kv_groups.begin(), model_.spec.kv_groups.end(),
                                   [](const KvGroupSpec& group) { return group.window != 0; });
  const uint32_t tokens =
      static_cast<uint32_t>((ids.size() + 15) / 16 * 16) + (windows ? kPageTokens : 0);
  const auto forward = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16, .kv_tokens = tokens});
  const std::vector<float> fresh = Logits(forward.get(), ids);
  std::vector<uint32_t> others(ids.rbegin(), ids.rend());
  EXPECT_FALSE(SameBits(Logits(forward.get(), others), fresh));
  EXPECT_TRUE(SameBits(Logits(forward.get(), ids, 5), fresh));
}

TEST_P(GoldenTest, CopiedPagesContinueAlike) {
  const auto backend = Cpu();
  const auto forward = LoadOn(backend.get(), {.kv_dtype = v1::KV_DTYPE_F16});
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

// How far two classes of one model may lie apart: their logits' difference by the logits' size.
// Most in models of random weights, which are small differences of large sums.
TEST_P(QuantizedTest, LogitsAreNearThoseOfTheStoredWeights) {
  const auto backend = Cpu();
  const auto stored = strata::testing::LoadOn(backend.get(), model_);
  const auto forward = LoadOn(backend.get());
  const bool int4 = GetParam().quantize == v1::QUANTIZE_INT4;
  double difference = 0;
  double size = 0;
  for (const GoldenCase& one : model_.cases) {
    const std::vector<float> a = Logits(stored.get(), one.AllIds());
    const std::vector<float> b = Logits(forward.get(), one.AllIds());
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(a[i] - b[i], 2);
      size += std::pow(a[i], 2);
    }
  }
  const double share = std::sqrt(difference / size);
  EXPECT_GT(share, 0) << "nothing was quantized";
  // A row whose experts are nearly tied may get others, whose weights have nothing in common; where
  // groups of them are chosen first, all others at once.
  const MlpSpec& mlp = model_.spec.layers.back().mlp;
  const bool groups = mlp.router.groups > 1;
  EXPECT_LT(share, int4 ? (groups ? 0.8 : 0.6) : groups ? 0.25 : mlp.experts != 0 ? 0.15 : 0.08);
}

// What quantizing the bundled model costs, where it had a clear opinion.
struct Fidelity {
  size_t clear = 0;  // Positions whose best two logits are more than 0.5 apart.
  size_t kept = 0;   // Of those, with the same best id.
  double kl = 0;     // Mean over all positions, in nats.
};

Fidelity MeasureFidelity(const GoldenModel& model, v1::Quantize quantize) {
  const auto backend = Cpu();
  const auto stored = LoadOn(backend.get(), model);
  const auto forward =
      LoadOn(backend.get(), model, {.quantize = quantize, .activations = v1::ACTIVATIONS_INT8});
  const size_t vocab = model.spec.vocab;
  Fidelity out;
  size_t rows = 0;
  for (size_t c = 0; c < model.all_cases.size(); c += 4) {
    const std::vector<float> a = Logits(stored.get(), model.all_cases[c].AllIds());
    const std::vector<float> b = Logits(forward.get(), model.all_cases[c].AllIds());
    for (size_t at = 0; at < a.size(); at += vocab, ++rows) {
      const auto row = a.begin() + at;
      const auto best = std::max_element(row, row + vocab);
      float second = -1e30f;
      double sum_a = 0;
      double sum_b = 0;
      for (size_t i = 0; i < vocab; ++i) {
        second = row + i == best ? second : std::max(second, row[i]);
        sum_a += std::exp(double{row[i]});
        sum_b += std::exp(double{b[at + i]});
      }
      for (size_t i = 0; i < vocab; ++i) {
        const double log_p = row[i] - std::log(sum_a);
        out.kl += std::exp(log_p) * (log_p - (b[at + i] - std::log(sum_b)));
      }
      if (*best - second > 0.5f) {
        ++out.clear;
        const auto other = b.begin() + at;
        out.kept += std::max_element(other, other + vocab) - other == best - row;
      }
    }
  }
  out.kl /= static_cast<double>(rows);
  return out;
}

Fidelity ReportFidelity(const GoldenModel& model, v1::Quantize quantize) {
  const Fidelity fidelity = MeasureFidelity(model, quantize);
  std::printf("%s, %s: %zu of %zu clear choices kept, KL %.2g nats\n", model.name.c_str(),
              v1::Quantize_Name(quantize).c_str(), fidelity.kept, fidelity.clear, fidelity.kl);
  return fidelity;
}

TEST(FidelityTest, QuantizingTheBundledModelKeepsItsChoices) {
  const GoldenModel model = LoadGoldenModel("recall");
  for (const v1::Quantize quantize : {v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    const Fidelity fidelity = ReportFidelity(model, quantize);
    EXPECT_GT(fidelity.clear, 500u);
    EXPECT_GE(static_cast<double>(fidelity.kept),
              (quantize == v1::QUANTIZE_INT8 ? 0.99 : 0.9) * static_cast<double>(fidelity.clear));
  }
}

// Of random weights, whose choices mean little: how far apart the distributions are is for people.
TEST(FidelityTest, QuantizingModelsOfRandomWeightsIsReported) {
  for (const char* const name : {"llama", "llama31", "llama2-mha-f32", "mistral", "qwen2", "qwen3",
                                 "gemma2", "gemma3", "phi3", "granite", "olmo2", "smollm3"}) {
    const GoldenModel model = LoadGoldenModel(name);
    const double int8 = ReportFidelity(model, v1::QUANTIZE_INT8).kl;
    const double int4 = ReportFidelity(model, v1::QUANTIZE_INT4).kl;
    EXPECT_GT(int8, 0) << "nothing was quantized";
    EXPECT_GT(int4, int8);
  }
}

std::string FormatName(const ::testing::TestParamInfo<GoldenFormat>& info) {
  std::string name = info.param.Name();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '/'; }, '_');
  return name;
}

std::vector<GoldenFormat> Formats(bool reference) {
  std::vector<GoldenFormat> formats = GoldenFormats();
  std::erase_if(formats, [&](const GoldenFormat& f) { return f.IsReference() != reference; });
  return formats;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, ::testing::ValuesIn(GoldenFormats()), FormatName);
INSTANTIATE_TEST_SUITE_P(Models, ReferenceTest, ::testing::ValuesIn(Formats(true)), FormatName);
INSTANTIATE_TEST_SUITE_P(Models, QuantizedTest, ::testing::ValuesIn(Formats(false)), FormatName);

}  // namespace
}  // namespace strata::testing
