#include "coordinator/cluster/weight_holders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::CacheContents Has(const std::vector<uint64_t>& blobs, bool anew = false) {
  v1::CacheContents contents;
  contents.set_anew(anew);
  contents.mutable_blobs()->Add(blobs.begin(), blobs.end());
  return contents;
}

std::vector<std::string> Names(const std::vector<v1::BlobSource>& sources) {
  std::vector<std::string> names;
  for (const v1::BlobSource& source : sources) {
    names.push_back(source.node() + (source.on_its_way() ? "?" : ""));
  }
  return names;
}

class WeightHoldersTest : public testing::Test {
 protected:
  WeightHoldersTest() {
    for (const char* node : {"a", "b", "c"}) holders_.OnJoined(node, 1, std::string(node) + ":7");
  }
  // Sources of a blob for `asker`, as whose transfer that is not begun.
  std::vector<v1::BlobSource> Sources(uint64_t blob, const std::string& asker,
                                      std::vector<std::string> not_from = {}) {
    return WeightHolders::Sending(
               &holders_,
               {.node = asker, .incarnation = 1, .blob = blob, .not_from = std::move(not_from)})
        .sources();
  }
  WeightHolders holders_;
};

TEST_F(WeightHoldersTest, NamesWhoSaidThatItHasABlobAndNobodyElse) {
  EXPECT_THAT(Sources(5, "c"), IsEmpty());
  holders_.OnContents("a", Has({5, 6}));
  const auto sources = Sources(5, "c");
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].node(), "a");
  EXPECT_EQ(sources[0].address(), "a:7");
  EXPECT_EQ(sources[0].incarnation(), 1u);
  EXPECT_THAT(Sources(5, "a"), IsEmpty()) << "not whoever asks";
  EXPECT_THAT(Sources(5, "c", {"a"}), IsEmpty());
  EXPECT_THAT(Sources(7, "c"), IsEmpty());
}

TEST_F(WeightHoldersTest, WhatIsEvictedOrLostIsNamedNoMore) {
  holders_.OnContents("a", Has({5, 6}));
  v1::CacheContents gone;
  gone.add_gone_blobs(5);
  holders_.OnContents("a", gone);
  EXPECT_FALSE(holders_.HasBlob("a", 5));
  EXPECT_TRUE(holders_.HasBlob("a", 6));
  holders_.OnContents("a", Has({7}, /*anew=*/true));
  EXPECT_FALSE(holders_.HasBlob("a", 6));
  holders_.OnLost("a");
  EXPECT_FALSE(holders_.HasBlob("a", 7));
  holders_.OnContents("a", Has({7}));
  EXPECT_FALSE(holders_.HasBlob("a", 7)) << "it is no member";
}

TEST_F(WeightHoldersTest, TheSourceThatWasNamedLeastComesFirst) {
  holders_.OnContents("a", Has({5}));
  holders_.OnContents("b", Has({5}));
  EXPECT_THAT(Names(Sources(5, "c")), ElementsAre("a", "b"));
  EXPECT_THAT(Names(Sources(5, "c")), ElementsAre("b", "a"));
  EXPECT_THAT(Names(Sources(5, "c")), ElementsAre("a", "b"));
}

TEST_F(WeightHoldersTest, WhoIsBeingSentABlobIsNamedUntilTheTransferEnds) {
  {
    WeightHolders::Sending sending(&holders_, {.node = "a", .incarnation = 1, .blob = 5});
    EXPECT_THAT(Names(Sources(5, "c")), ElementsAre("a?"));
    EXPECT_FALSE(holders_.HasBlob("a", 5));
  }
  EXPECT_THAT(Sources(5, "c"), IsEmpty()) << "it broke";
  {
    WeightHolders::Sending sending(&holders_, {.node = "a", .incarnation = 1, .blob = 5});
    sending.SentAll();
  }
  EXPECT_THAT(Names(Sources(5, "c")), ElementsAre("a"));
  { WeightHolders::Sending of_another_life(&holders_, {.node = "b", .incarnation = 2, .blob = 5}); }
  EXPECT_FALSE(holders_.HasBlob("b", 5));
}

TEST_F(WeightHoldersTest, OfTwoThatAskAtTheSameTimeOneIsSentItAndTheOtherWaitsForThat) {
  const WeightHolders::Sending first(&holders_, {.node = "a", .incarnation = 1, .blob = 5});
  const WeightHolders::Sending second(&holders_, {.node = "b", .incarnation = 1, .blob = 5});
  EXPECT_THAT(first.sources(), IsEmpty());
  EXPECT_THAT(Names(second.sources()), ElementsAre("a?"));
  const WeightHolders::Sending alone(&holders_,
                                     {.node = "b", .incarnation = 1, .blob = 5, .may_name = false});
  EXPECT_THAT(alone.sources(), IsEmpty());
}

TEST_F(WeightHoldersTest, MissingBytesAreThoseOfBlobsThatTheNodeDoesNotHave) {
  holders_.OnContents("a", Has({5}));
  EXPECT_EQ(holders_.MissingBytes("a", {{5, 100}, {6, 10}, {7, 1}}), 11u);
  EXPECT_EQ(holders_.MissingBytes("nobody", {{5, 100}, {6, 10}}), 110u);
}

TEST_F(WeightHoldersTest, NoNodeIsRememberedToHaveMoreThanTheLimit) {
  for (uint64_t first = 1; first <= 2 * WeightHolders::kMostOfNode; first += 8192) {
    std::vector<uint64_t> blobs;
    for (uint64_t i = 0; i < 8192; ++i) blobs.push_back(first + i);
    holders_.OnContents("a", Has(blobs));
  }
  EXPECT_EQ(holders_.CountsOf("a").first, WeightHolders::kMostOfNode);
}

}  // namespace
}  // namespace strata
