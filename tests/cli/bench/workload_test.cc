#include "cli/bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/status.h"

namespace strata::cli {
namespace {

using ::testing::HasSubstr;

LengthDistribution Parsed(std::string_view text) {
  const auto length = LengthDistribution::Parse(text);
  EXPECT_TRUE(length.ok()) << text << ": " << length.status();
  return *length;
}

WorkloadOptions Options() {
  WorkloadOptions options;
  options.prompt = Parsed("1-1500");
  options.answer = Parsed("lognormal:100,0.8,500");
  options.vocab_size = 1000;
  options.rate = 20;
  options.seed = 7;
  return options;
}

TEST(Lengths, ThatAreNoLengthsAreRefused) {
  for (const char* text : {"",
                           "0",
                           "x",
                           "5-",
                           "-5",
                           "7-3",
                           "0-3",
                           "1-2-3",
                           "1.5",
                           "lognormal:",
                           "lognormal:5",
                           "lognormal:5,1",
                           "lognormal:5,1,0",
                           "lognormal:50,1,10",
                           "lognormal:5,0,10",
                           "lognormal:5,-1,10",
                           "lognormal:nan,1,10",
                           "lognormal:5,inf,10",
                           "normal:5,1,10",
                           "99999999999"}) {
    const auto length = LengthDistribution::Parse(text);
    EXPECT_FALSE(length.ok()) << text;
    EXPECT_THAT(Describe(length.status()), HasSubstr("lognormal:200,1.0,1500")) << text;
  }
}

TEST(Lengths, UniformOnesReachBothEndsAndAllBetween) {
  const Workload workload(Options());
  std::set<uint32_t> seen;
  double sum = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const uint32_t tokens = workload.Lengths(i).prompt_tokens;
    ASSERT_GE(tokens, 1u);
    ASSERT_LE(tokens, 1500u);
    seen.insert(tokens);
    sum += tokens;
  }
  EXPECT_EQ(seen.size(), 1500u);
  EXPECT_NEAR(sum / 20'000, 750.5, 10);  // Three standard errors.
}

TEST(Lengths, LogNormalOnesHaveTheirMedianSpreadAndLargest) {
  const Workload workload(Options());
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 20'001; ++i) tokens.push_back(workload.Lengths(i).answer_tokens);
  std::sort(tokens.begin(), tokens.end());
  EXPECT_NEAR(tokens[10'000], 100, 3);
  // One sigma above: 84.13 % are below.
  EXPECT_NEAR(tokens[16'827], 100 * std::exp(0.8), 7);
  EXPECT_NEAR(tokens[3'174], 100 * std::exp(-0.8), 3);
  EXPECT_GE(tokens.front(), 1u);
  EXPECT_EQ(tokens.back(), 500u);
}

TEST(Lengths, OfAFileAreTakenInTurn) {
  const auto lengths = ParseLengths("# prompt,answer\n10,5\n\n 20 , 6 \r\n30,7");
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  WorkloadOptions options = Options();
  options.lengths = *lengths;
  const Workload workload(std::move(options));
  for (uint32_t i = 0; i < 7; ++i) {
    EXPECT_EQ(workload.Lengths(i).prompt_tokens, 10 * (i % 3 + 1));
    EXPECT_EQ(workload.Make(i).max_tokens, i % 3 + 5);
  }
}

TEST(Lengths, OfAFileThatHasNoneAreRefusedWithTheLine) {
  EXPECT_THAT(Describe(ParseLengths("10,5\n\n10\n").status()), HasSubstr("line 3"));
  EXPECT_THAT(Describe(ParseLengths("10,5,3\n").status()), HasSubstr("line 1"));
  EXPECT_THAT(Describe(ParseLengths("0,5\n").status()), HasSubstr("line 1"));
  EXPECT_FALSE(ParseLengths("# nothing\n").ok());
}

TEST(Workload, OfOneSeedIsTheSameAndOfAnotherAnother) {
  const Workload workload(Options());
  const Workload again(Options());
  WorkloadOptions other_options = Options();
  other_options.seed = 8;
  const Workload other(std::move(other_options));
  int same_lengths = 0;
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(workload.Make(i).prompt, again.Make(i).prompt);
    EXPECT_EQ(workload.Make(i).max_tokens, again.Make(i).max_tokens);
    EXPECT_EQ(workload.ArrivalGap(i), again.ArrivalGap(i));
    EXPECT_NE(workload.ArrivalGap(i), other.ArrivalGap(i));
    same_lengths += workload.Lengths(i).prompt_tokens == other.Lengths(i).prompt_tokens;
  }
  EXPECT_LE(same_lengths, 3);
}

TEST(Workload, IdsAreOfTheVocabularyAndSpreadOverIt) {
  const Workload workload(Options());
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < 20; ++i) {
    for (const uint32_t id : workload.Make(i).prompt) {
      ASSERT_LT(id, 1000u);
      seen.insert(id);
    }
  }
  EXPECT_GT(seen.size(), 990u);
}

TEST(Workload, RequestsOfAGroupShareTheirPrefixAndNothingElse) {
  WorkloadOptions options = Options();
  options.prompt = Parsed("40");
  options.shared_prefix = 100;
  options.prefix_groups = 3;
  const Workload workload(std::move(options));
  const auto common = [&](uint32_t a, uint32_t b) {
    const auto first = workload.Make(a).prompt;
    const auto second = workload.Make(b).prompt;
    EXPECT_EQ(first.size(), 140u);
    return std::mismatch(first.begin(), first.end(), second.begin()).first - first.begin();
  };
  for (uint32_t i = 0; i < 9; ++i) {
    EXPECT_GE(common(i, i + 3), 100);
    EXPECT_LE(common(i, i + 3), 102);  // The next tokens are equal once in a thousand.
    EXPECT_LE(common(i, i + 1), 2);
  }
}

TEST(Workload, ArrivalsArePoisson) {
  const Workload workload(Options());  // 20 a second.
  constexpr int kCount = 20'000;
  double sum = 0;
  double squares = 0;
  int above_mean = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    const double gap = ToMs(workload.ArrivalGap(i));
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    above_mean += gap > 50;
  }
  EXPECT_NEAR(sum / kCount, 50, 1.1);
  // Of exponential gaps the standard deviation is the mean, and 1/e are above it.
  EXPECT_NEAR(std::sqrt(squares / kCount - std::pow(sum / kCount, 2)), 50, 2);
  EXPECT_NEAR(above_mean / static_cast<double>(kCount), std::exp(-1), 0.011);
}

}  // namespace
}  // namespace strata::cli
