#include "common/sampling_params.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

TEST(SamplingParams, UnsetFieldsAreAccepted) {
  EXPECT_TRUE(ValidateSampling({}, 10).ok());
  EXPECT_EQ(ReasonOf(CheckSamplingComplete({})), "SAMPLING_INCOMPLETE");
}

TEST(SamplingParams, PlainOnesAreCompleteAndAccepted) {
  const v1::SamplingParams plain = PlainSampling(0, 7);
  EXPECT_TRUE(CheckSamplingComplete(plain).ok());
  EXPECT_TRUE(ValidateSampling(plain, 10).ok());
  EXPECT_EQ(plain.temperature(), 0);
  EXPECT_EQ(plain.seed(), 7u);
}

// Each bad value is refused with its field's name; the edges of the ranges are accepted.
TEST(SamplingParams, RangesAreCheckedAndTheFieldNamed) {
  using Set = void (*)(v1::SamplingParams*, float);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  struct Field {
    const char* name;
    Set set;
    std::vector<float> good;
    std::vector<float> bad;
  };
  const std::vector<Field> fields = {
      {"temperature", [](auto* p, float v) { p->set_temperature(v); }, {0, 1, 100}, {-0.1f}},
      {"top_p", [](auto* p, float v) { p->set_top_p(v); }, {0, 1}, {-0.1f, 1.1f}},
      {"min_p", [](auto* p, float v) { p->set_min_p(v); }, {0, 1}, {-0.1f, 1.1f}},
      {"typical_p", [](auto* p, float v) { p->set_typical_p(v); }, {0.1f, 1}, {0, 1.1f}},
      {"repetition_penalty",
       [](auto* p, float v) { p->set_repetition_penalty(v); },
       {0.1f, 3},
       {0, -1}},
      {"frequency_penalty",
       [](auto* p, float v) { p->set_frequency_penalty(v); },
       {-2, 2},
       {-2.1f, 2.1f}},
      {"presence_penalty",
       [](auto* p, float v) { p->set_presence_penalty(v); },
       {-2, 2},
       {-2.1f, 2.1f}},
  };
  for (const Field& field : fields) {
    for (const float value : field.good) {
      v1::SamplingParams params;
      field.set(&params, value);
      EXPECT_TRUE(ValidateSampling(params, 10).ok()) << field.name << " " << value;
    }
    std::vector<float> bad = field.bad;
    bad.insert(bad.end(), {kInf, -kInf, kNan});
    for (const float value : bad) {
      v1::SamplingParams params;
      field.set(&params, value);
      const absl::Status status = ValidateSampling(params, 10);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field.name << " " << value;
      EXPECT_EQ(DetailOf(status).facts().at("field"), field.name);
    }
  }
}

TEST(SamplingParams, LogitBiasIsCheckedAgainstTheVocabulary) {
  v1::SamplingParams params;
  (*params.mutable_logit_bias())[9] = 100;
  EXPECT_TRUE(ValidateSampling(params, 10).ok());
  EXPECT_FALSE(ValidateSampling(params, 9).ok());
  (*params.mutable_logit_bias())[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(ValidateSampling(params, 10).message().find("logit_bias[3]"), std::string::npos);
  params.clear_logit_bias();
  for (uint32_t id = 0; id <= kMaxLogitBias; ++id) {
    (*params.mutable_logit_bias())[id] = 1;
  }
  EXPECT_FALSE(ValidateSampling(params, 1 << 20).ok());
}

TEST(SamplingParams, TopKMayExceedTheVocabularyButNotEveryVocabulary) {
  v1::SamplingParams params;
  params.set_top_k(100000);
  EXPECT_TRUE(ValidateSampling(params, 10).ok());
  params.set_top_k(static_cast<uint32_t>(-1));
  EXPECT_FALSE(ValidateSampling(params, 10).ok());
}

}  // namespace
}  // namespace strata
