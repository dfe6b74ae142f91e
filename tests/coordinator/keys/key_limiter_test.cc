#include "coordinator/keys/key_limiter.h"

#include <gtest/gtest.h>

#include <chrono>

#include "common/status.h"

namespace strata {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart = seconds(1000);

// "" when it was admitted; then its prompt is charged.
std::string Begin(KeyLimiter* limiter, uint64_t prompt_tokens, TimePoint now,
                  bool replaces = false) {
  const absl::Status begun = limiter->Begin("alice", replaces, now);
  if (begun.ok()) limiter->Charge(prompt_tokens, now);
  return ReasonOf(begun);
}

uint64_t RetryAfterMs(KeyLimiter* limiter, TimePoint now) {
  const v1::ErrorDetail detail = DetailOf(limiter->Begin("alice", false, now));
  return std::stoull(detail.facts().at("retry_after_ms"));
}

TEST(KeyLimiter, WithoutLimitsAdmitsAnything) {
  KeyLimiter limiter({}, kStart);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(Begin(&limiter, 1'000'000, kStart), "");
    limiter.Charge(1'000'000, kStart);
  }
  EXPECT_EQ(limiter.in_flight(), 10'000u);
}

TEST(KeyLimiter, CountsThoseInFlight) {
  KeyLimiter limiter({.requests_in_flight = 2}, kStart);
  EXPECT_EQ(Begin(&limiter, 1, kStart), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart), "KEY_REQUESTS_IN_FLIGHT");
  limiter.End(kStart, kStart + seconds(1));
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(1)), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(1)), "KEY_REQUESTS_IN_FLIGHT");
}

TEST(KeyLimiter, OneThatTakesTheOthersPlaceNeedsNoOther) {
  KeyLimiter limiter({.requests_in_flight = 1}, kStart);
  EXPECT_EQ(Begin(&limiter, 1, kStart, /*replaces=*/true), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(1), /*replaces=*/true), "");
  // The one that was replaced has not ended yet.
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(1), /*replaces=*/true), "KEY_REQUESTS_IN_FLIGHT");
  limiter.End(kStart, kStart + seconds(2));
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(2)), "KEY_REQUESTS_IN_FLIGHT");
  EXPECT_EQ(limiter.in_flight(), 1u);
}

TEST(KeyLimiter, GuessesWhenOneInFlightWillEndFromThoseBefore) {
  KeyLimiter limiter({.requests_in_flight = 2}, kStart);
  EXPECT_EQ(Begin(&limiter, 1, kStart), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(5)), "");
  // None has ended: as long again as the oldest one has taken.
  EXPECT_EQ(RetryAfterMs(&limiter, kStart + seconds(8)), 8000u);
  EXPECT_EQ(RetryAfterMs(&limiter, kStart + seconds(200)), 60'000u);
  // They take 20 seconds, so the one that is 15 old has 5 left.
  limiter.End(kStart, kStart + seconds(20));
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(20)), "");
  EXPECT_EQ(RetryAfterMs(&limiter, kStart + seconds(20)), 5000u);
  EXPECT_EQ(RetryAfterMs(&limiter, kStart + seconds(100)), 1000u) << "overdue";
  // A newer one that took 10 counts a fifth.
  limiter.End(kStart + seconds(20), kStart + seconds(30));
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(30)), "");
  limiter.End(kStart + seconds(5), kStart + seconds(23));
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(31)), "");
  EXPECT_EQ(RetryAfterMs(&limiter, kStart + seconds(31)), 17'000u);
}

TEST(KeyLimiter, AMinutesRequestsMayComeAtOnceThenEvenly) {
  KeyLimiter limiter({.requests_per_minute = 30}, kStart);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(Begin(&limiter, 1, kStart), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart), "KEY_REQUEST_RATE");
  EXPECT_EQ(RetryAfterMs(&limiter, kStart), 2000u);
  EXPECT_EQ(RetryAfterMs(&limiter, kStart + seconds(1)), 1000u);
  EXPECT_EQ(Begin(&limiter, 1, kStart + milliseconds(1999)), "KEY_REQUEST_RATE");
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(2)), "") << "when it said so";
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(2)), "KEY_REQUEST_RATE");
}

TEST(KeyLimiter, OverALongTimeTheRateHolds) {
  KeyLimiter limiter({.requests_per_minute = 60}, kStart);
  int admitted = 0;
  for (int ms = 0; ms < 600'000; ms += 10) {
    admitted += Begin(&limiter, 1, kStart + milliseconds(ms)).empty() ? 1 : 0;
  }
  EXPECT_GE(admitted, 658);  // A minute's worth, and one each second.
  EXPECT_LE(admitted, 660);
}

TEST(KeyLimiter, TokensBeyondTheLimitDelayTheNextRequest) {
  KeyLimiter limiter({.tokens_per_minute = 600}, kStart);
  EXPECT_EQ(Begin(&limiter, 500, kStart), "");
  EXPECT_EQ(Begin(&limiter, 500, kStart), "") << "100 were left";
  limiter.Charge(200, kStart);
  EXPECT_EQ(Begin(&limiter, 1, kStart), "KEY_TOKEN_RATE");
  // 600 are owed, at 10 a second, and one more must be there.
  EXPECT_EQ(RetryAfterMs(&limiter, kStart), 60'100u);
  EXPECT_EQ(Begin(&limiter, 1, kStart + milliseconds(60'099)), "KEY_TOKEN_RATE");
  EXPECT_EQ(Begin(&limiter, 1, kStart + milliseconds(60'100)), "");
}

TEST(KeyLimiter, ARequestThatWasRefusedCostsNothing) {
  KeyLimiter limiter({.requests_in_flight = 1, .requests_per_minute = 2, .tokens_per_minute = 10},
                     kStart);
  EXPECT_EQ(Begin(&limiter, 5, kStart), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Begin(&limiter, 5, kStart), "KEY_REQUESTS_IN_FLIGHT");
  limiter.End(kStart, kStart);
  EXPECT_EQ(Begin(&limiter, 5, kStart), "") << "the second request, and 5 tokens were left";
}

TEST(KeyLimiter, APromptThatNobodyComputedIsGivenBack) {
  KeyLimiter limiter({.tokens_per_minute = 100}, kStart);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Begin(&limiter, 100, kStart), "");
    limiter.GiveBack(100);
    limiter.End(kStart, kStart);
  }
  limiter.GiveBack(1000);
  EXPECT_EQ(Begin(&limiter, 100, kStart), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart), "KEY_TOKEN_RATE") << "never more than a minute's worth";
}

TEST(KeyLimiter, SaysWhoseLimitItIs) {
  KeyLimiter limiter({.requests_per_minute = 1}, kStart);
  EXPECT_EQ(Begin(&limiter, 1, kStart), "");
  const absl::Status refused = limiter.Begin("alice", false, kStart);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refused).limit(), "requests_per_minute=1");
  EXPECT_NE(Describe(refused).find("alice"), std::string::npos);
}

TEST(KeyLimiter, TimeThatStandsStillOrRunsBackChangesNothing) {
  KeyLimiter limiter({.requests_per_minute = 1}, kStart);
  EXPECT_EQ(Begin(&limiter, 1, kStart), "");
  EXPECT_EQ(Begin(&limiter, 1, kStart - seconds(500)), "KEY_REQUEST_RATE");
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(59)), "KEY_REQUEST_RATE");
  EXPECT_EQ(Begin(&limiter, 1, kStart + seconds(60)), "");
}

}  // namespace
}  // namespace strata
