#include "coordinator/service/models/standby_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TimePoint kStart = std::chrono::seconds(100);

StandbyPart Part(uint32_t first, uint32_t last, const std::string& of, const std::string& node) {
  return {first, last, of, node, absl::OkStatus()};
}

// As "c: 3" for a layer to keep, and "c: -3 -4" for those to drop.
std::vector<std::string> Said(const std::vector<StandbyBook::Say>& says) {
  std::vector<std::string> texts;
  for (const StandbyBook::Say& say : says) {
    std::string text = say.node.name + ":";
    if (say.keep.has_value()) text += " " + std::to_string(*say.keep);
    for (const uint32_t layer : say.drop) text += " -" + std::to_string(layer);
    texts.push_back(text);
  }
  return texts;
}

v1::LayerKept Kept(uint32_t layer, uint64_t bytes = 10) {
  v1::LayerKept kept;
  kept.set_layer(layer);
  kept.set_bytes(bytes);
  return kept;
}

v1::LayerKept Failed(uint32_t layer) {
  v1::LayerKept kept;
  kept.set_layer(layer);
  *kept.mutable_error() =
      DetailOf(Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", "the disk is full"));
  return kept;
}

class StandbyBookTest : public testing::Test {
 protected:
  const std::map<std::string, uint64_t> lives_ = {{"a", 1}, {"b", 1}, {"c", 1}};
  const StandbyBook::Node c_{"c", 1};
  StandbyBook book_;
};

TEST_F(StandbyBookTest, ANodeKeepsOneLayerAtATimeUntilAllAreReady) {
  EXPECT_THAT(book_.Set({Part(0, 1, "a", "c"), Part(2, 2, "b", "a")}, lives_), IsEmpty());
  EXPECT_THAT(Said(book_.Next(kStart)), ElementsAre("a: 2", "c: 0"));
  EXPECT_THAT(book_.Next(kStart), IsEmpty());
  EXPECT_EQ(book_.Describe()[0].state(), "loading");
  EXPECT_TRUE(book_.OnKept(c_, Kept(0), kStart));
  EXPECT_FALSE(book_.OnKept(c_, Kept(0), kStart)) << "it is known";
  EXPECT_FALSE(book_.OnKept({"c", 2}, Kept(1), kStart)) << "of another life";
  EXPECT_THAT(Said(book_.Next(kStart)), ElementsAre("c: 1"));
  EXPECT_EQ(book_.Describe()[0].layers_done(), 1u);
  EXPECT_TRUE(book_.OnKept(c_, Kept(1, 20), kStart));
  EXPECT_EQ(book_.Describe()[0].state(), "ready");
  EXPECT_EQ(book_.Describe()[0].bytes(), 30u);
}

TEST_F(StandbyBookTest, AFailureIsTypedAndTheNodeIsTriedAgainLater) {
  book_.Set({Part(0, 2, "a", "c")}, lives_);
  book_.Next(kStart);
  book_.OnKept(c_, Failed(0), kStart);
  EXPECT_EQ(book_.Describe()[0].state(), "failed");
  EXPECT_EQ(book_.Describe()[0].problem_reason(), "DISK_FULL");
  EXPECT_EQ(book_.Describe()[0].problem(), "the disk is full");
  EXPECT_THAT(book_.Next(kStart + std::chrono::seconds(1)), IsEmpty());
  const TimePoint later = kStart + std::chrono::minutes(1);
  EXPECT_THAT(Said(book_.Next(later)), ElementsAre("c: 0"));
  book_.OnKept(c_, Kept(0), later);
  EXPECT_THAT(Said(book_.Next(later)), ElementsAre("c: 1"));
}

TEST_F(StandbyBookTest, WhatIsWantedElsewhereIsDroppedAndTheRestStays) {
  book_.Set({Part(0, 1, "a", "c")}, lives_);
  book_.Next(kStart);
  book_.OnKept(c_, Kept(0), kStart);
  EXPECT_THAT(Said(book_.Set({Part(0, 0, "a", "c"), Part(1, 1, "a", "b")}, lives_)),
              ElementsAre("c: -1"));
  EXPECT_EQ(book_.Describe()[0].state(), "ready");
  EXPECT_THAT(Said(book_.Next(kStart)), ElementsAre("b: 1"));
  EXPECT_THAT(Said(book_.Clear()), ElementsAre("b: -1", "c: -0"));
}

TEST_F(StandbyBookTest, ANodeThatCameBackKeepsAnew) {
  book_.Set({Part(0, 0, "a", "c")}, lives_);
  book_.Next(kStart);
  book_.OnKept(c_, Kept(0), kStart);
  std::map<std::string, uint64_t> lives = lives_;
  lives["c"] = 2;
  book_.Set({Part(0, 0, "a", "c")}, lives);
  EXPECT_EQ(book_.Describe()[0].state(), "waiting");
  const auto says = book_.Next(kStart);
  ASSERT_EQ(says.size(), 1u);
  EXPECT_EQ(says[0].node.incarnation, 2u);
  book_.NotSaid(says[0]);
  EXPECT_THAT(Said(book_.Next(kStart)), ElementsAre("c: 0"));
}

TEST_F(StandbyBookTest, WhatWasEvictedIsKeptAgain) {
  book_.Set({Part(0, 1, "a", "c")}, lives_);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    book_.Next(kStart);
    book_.OnKept(c_, Kept(layer), kStart);
  }
  const auto has = [](const std::string&, uint32_t layer) { return layer != 1; };
  book_.Check(has, kStart + std::chrono::seconds(1));
  EXPECT_EQ(book_.Describe()[0].state(), "ready") << "the node may not have said so yet";
  book_.Check(has, kStart + std::chrono::minutes(1));
  EXPECT_THAT(Said(book_.Next(kStart)), ElementsAre("c: 1"));
}

TEST_F(StandbyBookTest, LayersThatNoNodeKeepsSayWhy) {
  StandbyPart none = Part(0, 3, "a", "");
  none.why = Error(absl::StatusCode::kResourceExhausted, "KV_NEVER_FITS", "there is no room");
  book_.Set({none}, lives_);
  EXPECT_THAT(book_.Next(kStart), IsEmpty());
  EXPECT_EQ(book_.Describe()[0].state(), "failed");
  EXPECT_EQ(book_.Describe()[0].problem_reason(), "KV_NEVER_FITS");
}

}  // namespace
}  // namespace strata
