#include "worker/sampler/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "common/numerics/math.h"
#include "common/random.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "tests/golden.h"

namespace strata {
namespace {

using Json = nlohmann::json;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

v1::SamplingParams Defaults() { return PlainSampling(1, 1); }

// The data writes what JSON lacks as text.
double Number(const Json& value) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    return text == "nan" ? kNan : text == "inf" ? kInf : -kInf;
  }
  return value.get<double>();
}

// A negative number in an unsigned field arrives as a client would send it: without its sign.
uint32_t Unsigned(const Json& value) { return static_cast<uint32_t>(value.get<int64_t>()); }

v1::SamplingParams ParamsOf(const Json& json) {
  v1::SamplingParams params = Defaults();
  for (const auto& [name, value] : json.items()) {
    if (name == "temperature") {
      params.set_temperature(static_cast<float>(Number(value)));
    } else if (name == "top_k") {
      params.set_top_k(Unsigned(value));
    } else if (name == "top_p") {
      params.set_top_p(static_cast<float>(Number(value)));
    } else if (name == "min_p") {
      params.set_min_p(static_cast<float>(Number(value)));
    } else if (name == "typical_p") {
      params.set_typical_p(static_cast<float>(Number(value)));
    } else if (name == "repetition_penalty") {
      params.set_repetition_penalty(static_cast<float>(Number(value)));
    } else if (name == "frequency_penalty") {
      params.set_frequency_penalty(static_cast<float>(Number(value)));
    } else if (name == "presence_penalty") {
      params.set_presence_penalty(static_cast<float>(Number(value)));
    } else if (name == "logit_bias") {
      for (const auto& [id, bias] : value.items()) {
        (*params.mutable_logit_bias())[static_cast<uint32_t>(std::stoll(id))] =
            static_cast<float>(Number(bias));
      }
    } else {
      ADD_FAILURE() << "parameter " << name << " is not known to this test";
    }
  }
  return params;
}

struct Case {
  std::vector<float> logits;
  v1::SamplingParams params;
  std::vector<uint32_t> ids;
  uint32_t prompt_length = 0;
  uint32_t min_tokens = 0;
  std::vector<uint32_t> stop_ids;
  SampleRequest Request() const { return {&params, prompt_length, ids, min_tokens, stop_ids}; }
};

Case CaseOf(const Json& json, const Json& vectors) {
  Case result;
  for (const Json& value : vectors.at(json.at("logits").get<std::string>())) {
    result.logits.push_back(static_cast<float>(Number(value)));
  }
  result.params = ParamsOf(json.at("parameters"));
  for (const char* part : {"prompt_ids", "output_ids"}) {
    for (const Json& id : json.at(part)) {
      result.ids.push_back(id.get<uint32_t>());
    }
  }
  result.prompt_length = static_cast<uint32_t>(json.at("prompt_ids").size());
  result.min_tokens = json.value("min_tokens", 0u);
  result.stop_ids = json.value("stop_ids", std::vector<uint32_t>());
  return result;
}

void ExpectDistribution(const Json& json, const Case& c) {
  Sampler sampler(static_cast<uint32_t>(c.logits.size()));
  auto distribution = sampler.Distribution(c.Request(), c.logits);
  ASSERT_TRUE(distribution.ok()) << distribution.status();
  std::map<uint32_t, double> got;
  for (const TokenProbability& entry : *distribution) {
    got[entry.token_id] = entry.probability;
  }
  const Json& expected = json.at("probabilities");
  for (uint32_t id = 0; id < c.logits.size(); ++id) {
    const double want = expected.value(std::to_string(id), 0.0);
    const double have = got.contains(id) ? got[id] : 0.0;
    EXPECT_NEAR(have, want, 1e-5) << "id " << id;
    if (std::max(want, have) > 1e-6) {
      EXPECT_EQ(have > 0, want > 0) << "id " << id;
    }
  }
  // What is drawn is drawn from that distribution.
  auto token = sampler.Sample(c.Request(), c.logits);
  ASSERT_TRUE(token.ok());
  EXPECT_TRUE(got.contains(*token));
}

TEST(Sampler, GivesTheGoldenDistributions) {
  const Json all = Json::parse(
      strata::testing::ReadFileOrFail(strata::testing::GoldenPath("sampling/cases.json")));
  size_t errors = 0;
  size_t distributions = 0;
  for (const Json& json : all.at("cases")) {
    SCOPED_TRACE(json.dump().substr(0, 300));
    const Case c = CaseOf(json, all.at("logits"));
    if (json.value("error", false)) {
      Sampler sampler(static_cast<uint32_t>(c.logits.size()));
      EXPECT_FALSE(sampler.Sample(c.Request(), c.logits).ok());
      EXPECT_FALSE(sampler.Distribution(c.Request(), c.logits).ok());
      ++errors;
    } else {
      ExpectDistribution(json, c);
      ++distributions;
    }
  }
  EXPECT_GT(errors, 0u);
  EXPECT_GT(distributions, 0u);
}

std::vector<float> RandomLogits(uint32_t vocab, float spread, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocab);
  for (float& logit : logits) {
    logit = normal(rng);
  }
  return logits;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  v1::SamplingParams params = Defaults();
  params.set_temperature(0);
  Sampler sampler(5);
  const std::vector<float> logits = {1, 7, 3, 7, 7};
  EXPECT_EQ(*sampler.Sample({&params, 0, {}}, logits), 1u);
}

// Long rows are looked through block by block.
TEST(Sampler, GreedyTakesTheFirstOfTheLargestOfAnyRow) {
  std::mt19937 random(1);
  v1::SamplingParams greedy = Defaults();
  greedy.set_temperature(0);
  v1::SamplingParams adjusted = greedy;  // In double, with what changes nothing.
  (*adjusted.mutable_logit_bias())[0] = 0;
  for (const uint32_t vocab : {1u, 2u, 511u, 512u, 513u, 1024u, 1030u, 1536u, 5000u}) {
    Sampler sampler(vocab);
    for (int round = 0; round < 40; ++round) {
      // Few different values, so that the largest is there several times; all below 0 now and then,
      // or zeros of both signs.
      std::vector<float> logits(vocab);
      const uint32_t values = 1 + random() % (3 * vocab);
      const float base = round % 3 == 0 ? -static_cast<float>(values) - 1 : -1;
      for (float& logit : logits) {
        logit = base + static_cast<float>(random() % values);
        logit = logit == 0 && random() % 2 == 0 ? -0.0f : logit;
      }
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      for (const v1::SamplingParams* params : {&greedy, &adjusted}) {
        const auto token = sampler.Sample({params, 0, {}}, logits);
        ASSERT_TRUE(token.ok()) << token.status();
        ASSERT_EQ(*token, static_cast<uint32_t>(best)) << vocab;
      }
    }
  }
}

TEST(Sampler, GreedyTakesALargestWhereverItIs) {
  constexpr uint32_t kVocab = 1300;
  Sampler sampler(kVocab);
  v1::SamplingParams greedy = Defaults();
  greedy.set_temperature(0);
  std::vector<float> logits(kVocab, -kInf);
  for (uint32_t id = 0; id < kVocab; ++id) {
    logits[id] = -1000;
    ASSERT_EQ(sampler.Sample({&greedy, 0, {}}, logits).value(), id);
    logits[kVocab - 1] = -1000;  // Equal, and later.
    ASSERT_EQ(sampler.Sample({&greedy, 0, {}}, logits).value(), id);
    logits[id] = logits[kVocab - 1] = -kInf;
  }
}

TEST(Sampler, LogprobsAreThoseOfASumOfOneAfterAnother) {
  constexpr uint32_t kVocab = 1003;
  Sampler sampler(kVocab);
  std::mt19937 random(2);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) {
    logit = static_cast<float>(random() % 4000) / 100 - 20;
  }
  logits[17] = -kInf;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) {
    sum += ExpF64(logit - largest);
  }
  for (uint32_t id = 0; id < kVocab; ++id) {
    EXPECT_EQ(sampler.Logprob(logits, id, 0)->logprob(),
              static_cast<float>((logits[id] - largest) - LogF64(sum)));
  }
}

TEST(Sampler, DrawsAreTheInverseOfTheDistributionFunction) {
  v1::SamplingParams params = Defaults();
  Sampler sampler(4);
  const std::vector<float> logits = {0, std::log(2.0f), std::log(3.0f), std::log(4.0f)};
  std::vector<uint32_t> ids;
  for (uint32_t position = 0; position < 200; ++position) {
    const double u = UniformDouble(Philox(1, 0, position));
    const uint32_t want = u < 0.1 ? 0 : u < 0.3 ? 1 : u < 0.6 ? 2 : 3;
    EXPECT_EQ(*sampler.Sample({&params, 0, ids}, logits), want) << position;
    ids.push_back(0);
  }
}

TEST(Sampler, SeedChoiceAndPositionEachChangeTheDraw) {
  const std::vector<float> logits(1000, 0.0f);
  Sampler sampler(1000);
  v1::SamplingParams params = Defaults();
  const std::vector<uint32_t> one = {5};
  const uint32_t base = *sampler.Sample({&params, 0, {}}, logits);
  EXPECT_NE(base, *sampler.Sample({&params, 0, one}, logits));
  v1::SamplingParams other = params;
  other.set_choice(1);
  EXPECT_NE(base, *sampler.Sample({&other, 0, {}}, logits));
  other = params;
  other.set_seed(2);
  EXPECT_NE(base, *sampler.Sample({&other, 0, {}}, logits));
  EXPECT_EQ(base, *sampler.Sample({&params, 0, {}}, logits));
}

// The random number is the position's, whatever was barred before.
TEST(Sampler, MinTokensBarsStopIdsAndChangesNothingElse) {
  constexpr uint32_t kVocab = 50;
  v1::SequenceParams params;
  *params.mutable_sampling() = Defaults();
  params.set_prompt_length(3);
  v1::SequenceParams barring = params;
  barring.set_min_tokens(200);
  for (uint32_t id = 0; id < 10; ++id) barring.add_stop_ids(id);
  Sampler sampler(kVocab);
  std::vector<uint32_t> ids = {1, 2, 3};
  int barred = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits = RandomLogits(kVocab, 1, static_cast<uint32_t>(i));
    const uint32_t free = *sampler.Sample(SampleRequestOf(params, ids), logits);
    const uint32_t got = *sampler.Sample(SampleRequestOf(barring, ids), logits);
    if (i < 200) {
      EXPECT_GE(got, 10u);
      for (uint32_t id = 0; id < 10; ++id) logits[id] = -kInf;
      EXPECT_EQ(got, *sampler.Sample(SampleRequestOf(params, ids), logits));
      barred += free < 10 ? 1 : 0;
    } else {
      EXPECT_EQ(got, free);
    }
    ids.push_back(got);
  }
  EXPECT_GT(barred, 10);
}

// Scratch memory of one call must not reach the next.
TEST(Sampler, NothingIsRememberedBetweenCalls) {
  constexpr uint32_t kVocab = 700;
  std::mt19937 rng(7);
  Sampler reused(kVocab);
  for (int round = 0; round < 200; ++round) {
    v1::SamplingParams params = Defaults();
    params.set_temperature(std::vector<float>{0, 0.5f, 1, 1.7f}[rng() % 4]);
    params.set_top_k(rng() % 2 == 0 ? 0 : 1 + rng() % 40);
    params.set_top_p(rng() % 2 == 0 ? 1 : 0.7f);
    params.set_min_p(rng() % 2 == 0 ? 0 : 0.02f);
    params.set_typical_p(rng() % 2 == 0 ? 1 : 0.8f);
    params.set_repetition_penalty(rng() % 2 == 0 ? 1 : 1.3f);
    params.set_frequency_penalty(rng() % 2 == 0 ? 0 : 0.4f);
    params.set_seed(rng());
    std::vector<uint32_t> ids(rng() % 30);
    for (uint32_t& id : ids) {
      id = rng() % kVocab;
    }
    const auto logits = RandomLogits(kVocab, 2, rng());
    const SampleRequest request = {&params, static_cast<uint32_t>(ids.size() / 2), ids};
    Sampler fresh(kVocab);
    EXPECT_EQ(*reused.Sample(request, logits), *fresh.Sample(request, logits));
  }
}

TEST(Sampler, LogprobsAreOfTheRawLogitsWithTiesByAscendingId) {
  Sampler sampler(6);
  const std::vector<float> logits = {2, -kInf, 3, 2, -1, 2};
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit));
  }
  auto logprob = sampler.Logprob(logits, 4, 10);
  ASSERT_TRUE(logprob.ok());
  EXPECT_EQ(logprob->token_id(), 4u);
  EXPECT_NEAR(logprob->logprob(), -1 - std::log(sum), 1e-6);
  std::vector<uint32_t> ids;
  for (const auto& entry : logprob->top()) {
    ids.push_back(entry.token_id());
    EXPECT_NEAR(entry.logprob(), logits[entry.token_id()] - std::log(sum), 1e-6);
  }
  EXPECT_EQ(ids, (std::vector<uint32_t>{2, 0, 3, 5, 4}));  // -inf is no candidate.
  EXPECT_EQ(sampler.Logprob(logits, 4, 2)->top_size(), 2);
  EXPECT_EQ(sampler.Logprob(logits, 4, 0)->top_size(), 0);
  EXPECT_EQ(sampler.Logprob(logits, 1, 0)->logprob(), -kInf);
  EXPECT_EQ(ReasonOf(sampler.Logprob(logits, 6, 0).status()), "TOKEN_OUT_OF_RANGE");
}

TEST(Sampler, RefusesLogitsThatAreNoNumbersAndSaysWhich) {
  Sampler sampler(3);
  const v1::SamplingParams params = Defaults();
  for (const float bad : {kNan, kInf}) {
    const std::vector<float> logits = {0, 1, bad};
    auto token = sampler.Sample({&params, 0, {}}, logits);
    EXPECT_EQ(ReasonOf(token.status()), "NON_FINITE");
    EXPECT_NE(token.status().message().find("token 2"), std::string::npos);
    EXPECT_EQ(ReasonOf(sampler.Logprob(logits, 0, 0).status()), "NON_FINITE");
  }
  EXPECT_EQ(ReasonOf(sampler.Sample({&params, 0, {}}, std::vector<float>(3, -kInf)).status()),
            "NON_FINITE");
  EXPECT_EQ(ReasonOf(sampler.Sample({&params, 0, {}}, std::vector<float>(2, 0)).status()),
            "LOGITS_SIZE");
}

TEST(Sampler, RefusesIncompleteParametersAndForeignIds) {
  Sampler sampler(3);
  const std::vector<float> logits = {0, 1, 2};
  v1::SamplingParams params = Defaults();
  const std::vector<uint32_t> ids = {3};
  EXPECT_EQ(ReasonOf(sampler.Sample({&params, 0, ids}, logits).status()), "TOKEN_OUT_OF_RANGE");
  params.clear_min_p();
  EXPECT_EQ(ReasonOf(sampler.Sample({&params, 0, {}}, logits).status()), "SAMPLING_INCOMPLETE");
}

std::vector<uint32_t> MaskOf(const std::vector<uint32_t>& ids, uint32_t vocab) {
  std::vector<uint32_t> mask((vocab + 31) / 32, 0);
  for (const uint32_t id : ids) {
    mask[id / 32] |= uint32_t{1} << (id % 32);
  }
  return mask;
}

SampleRequest Masked(const v1::SamplingParams& params, const std::vector<uint32_t>& mask) {
  SampleRequest request{&params, 0, {}};
  request.mask = mask;
  return request;
}

// As if the others' logits were -inf, whatever the filters and penalties are.
TEST(Sampler, AMaskLeavesItsTokensAlone) {
  constexpr uint32_t kVocab = 70;  // Whole words, and a part of one.
  Sampler sampler(kVocab);
  const std::vector<uint32_t> allowed = {0, 31, 32, 33, 63, 64, 69};
  const auto mask = MaskOf(allowed, kVocab);
  const std::vector<uint32_t> ids = {31, 5, 5, 64};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto logits = RandomLogits(kVocab, 3, seed);
    auto barred = logits;
    for (uint32_t id = 0; id < kVocab; ++id) {
      if (std::find(allowed.begin(), allowed.end(), id) == allowed.end()) barred[id] = -kInf;
    }
    v1::SamplingParams params = Defaults();
    params.set_seed(seed);
    params.set_temperature(seed % 4 == 0 ? 0.0f : 1.5f);
    params.set_top_k(seed % 3 == 0 ? 3 : 0);
    params.set_top_p(seed % 5 == 0 ? 0.7f : 1.0f);
    params.set_min_p(seed % 7 == 0 ? 0.1f : 0.0f);
    params.set_typical_p(seed % 11 == 0 ? 0.5f : 1.0f);
    params.set_repetition_penalty(seed % 2 == 0 ? 1.3f : 1.0f);
    params.set_frequency_penalty(seed % 6 == 0 ? 0.5f : 0.0f);
    (*params.mutable_logit_bias())[1] = 100;  // Outside of the mask: it stays out.
    (*params.mutable_logit_bias())[32] = 1;
    SampleRequest request{&params, 1, ids};
    const auto expected = sampler.Sample(request, barred);
    request.mask = mask;
    const auto token = sampler.Sample(request, logits);
    ASSERT_TRUE(token.ok() && expected.ok()) << token.status();
    EXPECT_EQ(*token, *expected) << "seed " << seed;
  }
}

TEST(Sampler, AmongEqualsOfAMaskTheLowestIdWins) {
  Sampler sampler(40);
  v1::SamplingParams params = Defaults();
  params.set_temperature(0);
  const auto mask = MaskOf({33, 35, 39}, 40);
  EXPECT_EQ(sampler.Sample(Masked(params, mask), std::vector<float>(40, 2.5f)).value(), 33u);
  EXPECT_FALSE(sampler.TakesLargest(Masked(params, mask)));
}

TEST(Sampler, TopKAboveWhatAMaskAdmitsLeavesAllOfIt) {
  Sampler sampler(40);
  v1::SamplingParams params = Defaults();
  params.set_top_k(10);
  const auto mask = MaskOf({3, 35}, 40);
  const auto distribution = sampler.Distribution(Masked(params, mask), RandomLogits(40, 1, 1));
  ASSERT_TRUE(distribution.ok());
  ASSERT_EQ(distribution->size(), 2u);
  EXPECT_EQ((*distribution)[0].token_id, 3u);
  EXPECT_EQ((*distribution)[1].token_id, 35u);
}

TEST(Sampler, AMaskThatLeavesNothingIsAnError) {
  Sampler sampler(40);
  const v1::SamplingParams params = Defaults();
  const auto logits = RandomLogits(40, 1, 1);
  EXPECT_EQ(ReasonOf(sampler.Sample(Masked(params, MaskOf({}, 40)), logits).status()),
            "NON_FINITE");
  auto barred = logits;
  barred[4] = -kInf;
  EXPECT_EQ(ReasonOf(sampler.Sample(Masked(params, MaskOf({4}, 40)), barred).status()),
            "NON_FINITE");
  EXPECT_EQ(ReasonOf(sampler.Sample(Masked(params, {1}), logits).status()), "TOKEN_MASK");
}

// Plain definitions, with a full sort, against the selection that sorts no more than it needs.
TEST(Sampler, LargeVocabulariesKeepTheSameSetsAsAFullSort) {
  constexpr uint32_t kVocab = 20000;
  Sampler sampler(kVocab);
  for (const float spread : {0.01f, 1.0f, 4.0f}) {
    for (const float top_p : {0.1f, 0.6f, 0.97f}) {
      const auto logits = RandomLogits(kVocab, spread, 3);
      v1::SamplingParams params = Defaults();
      params.set_top_p(top_p);
      std::vector<uint32_t> order(kVocab);
      double total = 0;
      for (uint32_t id = 0; id < kVocab; ++id) {
        order[id] = id;
        total += std::exp(static_cast<double>(logits[id]));
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
      size_t kept = 0;
      for (double before = 0; kept < kVocab && before < top_p * total; ++kept) {
        before += std::exp(static_cast<double>(logits[order[kept]]));
      }
      const auto distribution = sampler.Distribution({&params, 0, {}}, logits);
      ASSERT_TRUE(distribution.ok());
      EXPECT_EQ(distribution->size(), kept) << "spread " << spread << " top_p " << top_p;
    }
  }
}

}  // namespace
}  // namespace strata
