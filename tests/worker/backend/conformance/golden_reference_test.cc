// Golden models give the numbers of the public reference, as stored and quantized.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "tests/worker/backend/conformance/conforming_backends.h"
#include "tests/worker/backend/models/golden_runs.h"

namespace strata::testing {
namespace {

class GoldenReference : public GoldenConformance {};
class GoldenQuantized : public GoldenConformance {};
class GoldenFamilies : public BackendConformance {};

TEST_P(GoldenReference, LogitsAndGreedyIdsAreTheReferences) {
  const auto forward = Load();
  for (const GoldenCase& one : model_.cases) {
    SCOPED_TRACE(one.name);
    const std::vector<float> logits = LogitsOf(forward.get(), one);
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
TEST_P(GoldenFamilies, AnEmbeddingsScaleIsPartOfWhatTheReferenceComputes) {
  GoldenModel model = LoadGoldenModel("gemma3");
  const auto rounded = std::find_if(model.all_cases.begin(), model.all_cases.end(),
                                    [](const GoldenCase& one) { return one.embedding_scale != 0; });
  ASSERT_NE(rounded, model.all_cases.end());
  const std::vector<float> expected = model.expected.Floats(rounded->name + ".logits");
  const auto difference = [&] {
    return LargestDifference(LogitsOf(LoadOn(backend_.get(), model).get(), rounded->AllIds()),
                             expected);
  };
  EXPECT_GT(difference(), 5e-3f);
  model.spec.embedding_scale = rounded->embedding_scale;
  EXPECT_LE(difference(), 5e-4f);
}

TEST_P(GoldenReference, HiddenStatesAreTheReferences) {
  const auto forward = Load({.keep_hidden = true});
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

// How far two classes of one model may lie apart: their logits' difference by the logits' size.
// Most in models of random weights, which are small differences of large sums.
TEST_P(GoldenQuantized, LogitsAreNearThoseOfTheStoredWeights) {
  const auto stored = LoadOn(backend_.get(), model_);
  const auto forward = Load();
  const bool int4 = format().quantize == v1::QUANTIZE_INT4;
  double difference = 0;
  double size = 0;
  for (const GoldenCase& one : model_.cases) {
    const std::vector<float> a = LogitsOf(stored.get(), one.AllIds());
    const std::vector<float> b = LogitsOf(forward.get(), one.AllIds());
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

// None where the backend does not quantize the model.
std::optional<Fidelity> MeasureFidelity(Backend* backend, const GoldenModel& model,
                                        v1::Quantize quantize) {
  const auto stored = LoadOn(backend, model);
  // With int8 activations where the backend has them.
  auto loaded = TryLoad(backend, model, {model.name, quantize, v1::ACTIVATIONS_INT8}, {});
  if (IsRefusal(loaded.status())) {
    loaded = TryLoad(backend, model, {model.name, quantize, v1::ACTIVATIONS_F32}, {});
  }
  if (!loaded.ok()) {
    EXPECT_TRUE(IsRefusal(loaded.status()));
    return std::nullopt;
  }
  const auto forward = *std::move(loaded);
  const size_t vocab = model.spec.vocab;
  Fidelity out;
  size_t rows = 0;
  for (size_t c = 0; c < model.all_cases.size(); c += 4) {
    const std::vector<float> a = LogitsOf(stored.get(), model.all_cases[c].AllIds());
    const std::vector<float> b = LogitsOf(forward.get(), model.all_cases[c].AllIds());
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

std::optional<Fidelity> ReportFidelity(Backend* backend, const GoldenModel& model,
                                       v1::Quantize quantize) {
  const std::optional<Fidelity> fidelity = MeasureFidelity(backend, model, quantize);
  const std::string kind = v1::Quantize_Name(quantize);
  if (fidelity.has_value()) {
    std::printf("%s, %s: %zu of %zu clear choices kept, KL %.2g nats\n", model.name.c_str(),
                kind.c_str(), fidelity->kept, fidelity->clear, fidelity->kl);
  } else {
    std::printf("%s, %s: the backend does not quantize it\n", model.name.c_str(), kind.c_str());
  }
  return fidelity;
}

class FidelityTest : public BackendConformance {};

TEST_P(FidelityTest, QuantizingTheBundledModelKeepsItsChoices) {
  const GoldenModel model = LoadGoldenModel("recall");
  for (const v1::Quantize quantize : {v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    const std::optional<Fidelity> fidelity = ReportFidelity(backend_.get(), model, quantize);
    ASSERT_TRUE(fidelity.has_value());
    EXPECT_GT(fidelity->clear, 500u);
    EXPECT_GE(static_cast<double>(fidelity->kept),
              (quantize == v1::QUANTIZE_INT8 ? 0.99 : 0.9) * static_cast<double>(fidelity->clear));
  }
}

// Of random weights, whose choices mean little: how far apart the distributions are is for people.
// A backend may leave out models whose widths are no whole groups of its integers, but not most.
TEST_P(FidelityTest, QuantizingModelsOfRandomWeightsIsReported) {
  size_t reported = 0;
  size_t models = 0;
  for (const char* const name : {"llama", "llama31", "llama2-mha-f32", "mistral", "qwen2", "qwen3",
                                 "gemma2", "gemma3", "phi3", "granite", "olmo2", "smollm3"}) {
    const GoldenModel model = LoadGoldenModel(name);
    const auto int8 = ReportFidelity(backend_.get(), model, v1::QUANTIZE_INT8);
    const auto int4 = ReportFidelity(backend_.get(), model, v1::QUANTIZE_INT4);
    ++models;
    if (!int8.has_value() || !int4.has_value()) {
      continue;
    }
    ++reported;
    EXPECT_GT(int8->kl, 0) << "nothing was quantized";
    EXPECT_GT(int4->kl, int8->kl);
  }
  EXPECT_GT(2 * reported, models);
}

std::vector<GoldenFormat> Formats(bool reference) {
  std::vector<GoldenFormat> formats = GoldenFormats();
  std::erase_if(formats, [&](const GoldenFormat& f) { return f.IsReference() != reference; });
  return formats;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenReference,
                         ::testing::Combine(::testing::ValuesIn(ConformingBackends()),
                                            ::testing::ValuesIn(Formats(true))),
                         KindAndFormatName);
INSTANTIATE_TEST_SUITE_P(Models, GoldenQuantized,
                         ::testing::Combine(::testing::ValuesIn(ConformingBackends()),
                                            ::testing::ValuesIn(Formats(false))),
                         KindAndFormatName);
INSTANTIATE_TEST_SUITE_P(Backends, GoldenFamilies, ::testing::ValuesIn(ConformingBackends()),
                         KindName);
INSTANTIATE_TEST_SUITE_P(Backends, FidelityTest, ::testing::ValuesIn(ConformingBackends()),
                         KindName);

}  // namespace
}  // namespace strata::testing
