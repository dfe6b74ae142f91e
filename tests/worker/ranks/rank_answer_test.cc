#include "worker/ranks/rank_answer.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "common/status.h"

namespace strata {
namespace {

using Bytes = std::array<uint8_t, kAnswerBytes>;

absl::Status ThereAndBack(const absl::Status& answer) {
  Bytes bytes;
  EncodeAnswer(answer, bytes);
  absl::Status read;
  const absl::Status decoded = DecodeAnswer(bytes, &read);
  EXPECT_TRUE(decoded.ok()) << decoded;
  return read;
}

TEST(RankAnswerTest, ItIsReadAsItWasGiven) {
  EXPECT_TRUE(ThereAndBack(absl::OkStatus()).ok());
  const absl::Status error =
      Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED", "too much")
          .Node("w1")
          .Limit("available=3")
          .Hint("load less");
  EXPECT_EQ(ThereAndBack(error), error);
}

TEST(RankAnswerTest, OfWhatIsTooLongTheMessageIsCutBetweenCharacters) {
  std::string message;
  while (message.size() < 3000) {
    message += "ü";
  }
  const absl::Status read =
      ThereAndBack(Error(absl::StatusCode::kInternal, "LONG", message).Hint("less"));
  EXPECT_EQ(ReasonOf(read), "LONG");
  EXPECT_EQ(DetailOf(read).hint(), "less");
  EXPECT_GT(read.message().size(), kAnswerBytes / 2);
  EXPECT_EQ(read.message().size() % 2, 0u);
  const absl::Status bare =
      ThereAndBack(Error(absl::StatusCode::kInternal, "LONG", "m").Hint(message));
  EXPECT_EQ(ReasonOf(bare), "LONG");
  EXPECT_EQ(bare.code(), absl::StatusCode::kInternal);
}

TEST(RankAnswerTest, WhatIsNoAnswerIsRefused) {
  absl::Status read;
  Bytes bytes{};
  bytes[0] = 3;
  bytes[4] = 0xff;
  bytes[5] = 0xff;
  bytes[6] = 0xff;
  EXPECT_EQ(ReasonOf(DecodeAnswer(bytes, &read)), kRankFrame);
  bytes.fill(0xff);
  EXPECT_EQ(ReasonOf(DecodeAnswer(bytes, &read)), kRankFrame);
}

}  // namespace
}  // namespace strata
