#include "common/checkpoint/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadFileOrFail;

TEST(GenerationDefaults, AreUnsetWithoutAFile) {
  const auto params = ParseGenerationDefaults("");
  ASSERT_TRUE(params.ok());
  EXPECT_FALSE(params->has_temperature());
  EXPECT_FALSE(params->has_top_k());
  EXPECT_FALSE(params->has_repetition_penalty());
}

TEST(GenerationDefaults, TakeWhatIsThere) {
  const auto params = ParseGenerationDefaults(
      R"({"do_sample":true,"temperature":0.6,"top_k":50,"top_p":0.9,"min_p":0.05,)"
      R"("typical_p":0.95,"repetition_penalty":1.1,"eos_token_id":[1,2]})");
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->temperature(), 0.6f);
  EXPECT_EQ(params->top_k(), 50);
  EXPECT_EQ(params->top_p(), 0.9f);
  EXPECT_EQ(params->min_p(), 0.05f);
  EXPECT_EQ(params->typical_p(), 0.95f);
  EXPECT_EQ(params->repetition_penalty(), 1.1f);
}

TEST(GenerationDefaults, AreGreedyWhenNotSampling) {
  EXPECT_EQ(ParseGenerationDefaults(R"({"do_sample":false,"temperature":0.6})")->temperature(), 0);
  EXPECT_TRUE(ParseGenerationDefaults(R"({"do_sample":false})")->has_temperature());
  EXPECT_FALSE(ParseGenerationDefaults(R"({"temperature":null})")->has_temperature());
}

TEST(GenerationDefaults, OfTheGoldenModelsAndTheBundledOne) {
  const auto llama31 = ParseGenerationDefaults(
      ReadFileOrFail(testing::GoldenPath("models/llama31/generation_config.json")));
  ASSERT_TRUE(llama31.ok()) << llama31.status();
  EXPECT_EQ(llama31->temperature(), 0.6f);
  EXPECT_EQ(llama31->top_p(), 0.9f);
  const auto recall = ParseGenerationDefaults(
      ReadFileOrFail(testing::SourcePath("models/recall/generation_config.json")));
  ASSERT_TRUE(recall.ok()) << recall.status();
  EXPECT_TRUE(recall->has_temperature());
  EXPECT_EQ(recall->temperature(), 0);
}

TEST(GenerationDefaults, NameAFieldOutOfItsRange) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature":-0.1})", "temperature"},
      {R"({"temperature":"hot"})", "temperature"},
      {R"({"top_k":-1})", "top_k"},
      {R"({"top_k":1.5})", "top_k"},
      {R"({"top_p":1.01})", "top_p"},
      {R"({"min_p":2})", "min_p"},
      {R"({"typical_p":0})", "typical_p"},
      {R"({"repetition_penalty":0})", "repetition"},
      {R"({"do_sample":"yes"})", "do_sample"},
      {R"([])", "generation_config.json"},
      {R"({)", "generation_config.json"},
      {R"({"top_p":1,"top_p":1})", "top_p"},
  };
  for (const auto& [text, field] : cases) {
    const auto params = ParseGenerationDefaults(text);
    EXPECT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(params.status().message()), HasSubstr(field)) << text;
  }
}

TEST(GenerationDefaults, NoteSettingsWithoutEffect) {
  std::vector<std::string> notes;
  ASSERT_TRUE(
      ParseGenerationDefaults(
          R"({"num_beams":4,"length_penalty":1.0,"suppress_tokens":[],"max_length":20})", &notes)
          .ok());
  EXPECT_THAT(notes, ElementsAre("generation_config.json's num_beams 4 has no effect here"));
}

}  // namespace
}  // namespace strata
