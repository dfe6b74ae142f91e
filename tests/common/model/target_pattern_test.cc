#include "common/model/target_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/status.h"

namespace strata {
namespace {

TargetPattern Target(const std::string& text) {
  const auto target = TargetPattern::Parse(text);
  EXPECT_TRUE(target.ok()) << target.status();
  return target.ok() ? *target : TargetPattern();
}

TEST(TargetPattern, IsAPathAPatternOrAClass) {
  EXPECT_TRUE(Target("model.layers.0.mlp").Matches("model.layers.0.mlp", "Linear"));
  EXPECT_FALSE(Target("model.layers.0.mlp").Matches("model.layers.0.mlp.up_proj", "Linear"));
  EXPECT_TRUE(Target("Linear").Matches("model.layers.0.mlp.up_proj", "Linear"));
  EXPECT_FALSE(Target("Linear").Matches("model.embed_tokens", "Embedding"));
  EXPECT_TRUE(Target("lm_head").Matches("lm_head", "Linear"));
  EXPECT_LT(Target("lm_head").kind(), Target("Linear").kind());
  EXPECT_LT(Target("re:.*").kind(), Target("Linear").kind());
}

// As Python's re.match does.
TEST(TargetPattern, MatchesFromTheBeginningAndNotToTheEnd) {
  EXPECT_TRUE(Target("re:model").Matches("model.layers", "Linear"));
  EXPECT_FALSE(Target("re:layers").Matches("model.layers", "Linear"));
  EXPECT_TRUE(Target(R"(re:.*\.(q|k)_proj$)").Matches("a.k_proj", "Linear"));
  EXPECT_FALSE(Target(R"(re:.*\.(q|k)_proj$)").Matches("a.k_proj.b", "Linear"));
  EXPECT_TRUE(Target(R"(re:.*mlp\.(?!gate$).*)").Matches("a.mlp.up", "Linear"));
  EXPECT_FALSE(Target(R"(re:.*mlp\.(?!gate$).*)").Matches("a.mlp.gate", "Linear"));
}

TEST(TargetPattern, WhatIsNoPatternIsRefusedByName) {
  const auto broken = TargetPattern::Parse("re:a(b");
  EXPECT_EQ(ReasonOf(broken.status()), "INVALID_CONFIG");
  EXPECT_THAT(std::string(broken.status().message()), ::testing::HasSubstr("\"re:a(b\""));
  EXPECT_FALSE(TargetPattern::Parse("re:" + std::string(2000, 'a')).ok());
}

// Which would take longer than the world lasts.
TEST(TargetPattern, StepsAreCounted) {
  EXPECT_FALSE(Target("re:(a*)*b").Matches(std::string(60, 'a'), "Linear"));
}

}  // namespace
}  // namespace strata
