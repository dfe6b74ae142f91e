#include "coordinator/service/request/text_stream.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

// Says the letter 'a' + id.
class Letters : public Tokenizer::Stream {
 public:
  std::string Add(uint32_t id) override { return std::string(1, static_cast<char>('a' + id)); }
  std::string Finish() override { return "!"; }
};

struct Said {
  std::string text;
  bool stopped = false;
  size_t used = 0;
};

Said Say(const std::string& letters, std::vector<std::string> stops, uint32_t min_tokens = 0) {
  TextStream stream(std::make_unique<Letters>(), std::move(stops), min_tokens);
  Said said;
  for (const char letter : letters) {
    said.text += stream.Add(static_cast<uint32_t>(letter - 'a'));
    ++said.used;
    if (stream.stopped()) break;
  }
  said.text += stream.Finish();
  said.stopped = stream.stopped();
  return said;
}

TEST(TextStream, WithoutStopStringsEverythingIsSaidAtOnce) {
  TextStream stream(std::make_unique<Letters>(), {});
  EXPECT_EQ(stream.Add(0), "a");
  EXPECT_EQ(stream.Finish(), "!");
}

TEST(TextStream, AStopStringEndsTheTextBeforeIt) {
  const Said said = Say("abcdefg", {"de"});
  EXPECT_EQ(said.text, "abc");
  EXPECT_TRUE(said.stopped);
  EXPECT_EQ(said.used, 5u);
}

TEST(TextStream, WhatMightBecomeAStopStringIsHeldBackAndSaidLater) {
  TextStream stream(std::make_unique<Letters>(), {"bcd"});
  EXPECT_EQ(stream.Add(0), "a");
  EXPECT_EQ(stream.Add(1), "");
  EXPECT_EQ(stream.Add(2), "");
  EXPECT_EQ(stream.Add(1), "bc");
  EXPECT_EQ(stream.Finish(), "b!");
}

TEST(TextStream, StopStringsEndNothingFromWhereItIsSaidOn) {
  // Says "ab" + the letter.
  class Words : public Tokenizer::Stream {
   public:
    std::string Add(uint32_t id) override {
      return std::string("ab") + static_cast<char>('a' + id);
    }
    std::string Finish() override { return ""; }
  };
  const auto say = [](const std::string& opening, const std::string& stop,
                      uint32_t min_tokens = 0) {
    TextStream stream(std::make_unique<Words>(), {stop}, min_tokens);
    std::string said;
    for (uint32_t id = 2; id < 5; ++id) {
      stream.Add(id, [&](std::string_view text) {
        said += text;
        return said.find(opening) != std::string::npos;
      });
    }
    return said + stream.Finish() + (stream.stopped() ? " stopped" : "");
  };
  EXPECT_EQ(say("never", "ba"), "abcabdabe");
  EXPECT_EQ(say("never", "d"), "abcab stopped");
  EXPECT_EQ(say("d", "d"), "abcab stopped");
  EXPECT_EQ(say("b", "c"), "abcabdabe");
  EXPECT_EQ(say("ca", "cabd"), "ab stopped");
  EXPECT_EQ(say("ca", "cabe"), "abcabdabe");
  EXPECT_EQ(say("ca", "b"), "a stopped");
  EXPECT_EQ(say("never", "b", 1), "abca stopped");
  TextStream stream(std::make_unique<Letters>(), {"abc"});
  EXPECT_EQ(stream.Add(0), "");
  EXPECT_EQ(stream.Add(1), "");
  EXPECT_EQ(stream.EndStops(), "ab");
  for (uint32_t id = 0; id < 3; ++id) {
    EXPECT_EQ(stream.Add(id), std::string(1, static_cast<char>('a' + id)));
  }
}

TEST(TextStream, OverlappingBeginningsAreFound) {
  EXPECT_EQ(Say("aabaabaac", {"aabaac"}).text, "aab");
  EXPECT_EQ(Say("ababac", {"abac"}).text, "ab");
}

TEST(TextStream, TheEarliestOfSeveralStopStringsWins) {
  EXPECT_EQ(Say("abcdef", {"ef", "cd"}).text, "ab");
  EXPECT_EQ(Say("abcdef", {"bcd", "c"}).text, "ab");
}

TEST(TextStream, AStopStringWithinTheFirstMinTokensIsText) {
  EXPECT_EQ(Say("abcabc", {"bc"}, 2).text, "a");
  EXPECT_EQ(Say("abcabc", {"bc"}, 3).text, "abca");
  EXPECT_EQ(Say("abcabc", {"bc"}, 5).text, "abca");
  EXPECT_EQ(Say("abcabc", {"bc"}, 6).text, "abcabc!");
  // One may begin there, and end later; a shorter one within what is held back for it may not.
  EXPECT_EQ(Say("abcd", {"bc", "abcd"}, 3).text, "");
  EXPECT_EQ(Say("abcdxbc", {"bc", "abce"}, 3).text, "abcdx");
  EXPECT_EQ(Say("aaaa", {"aa"}, 2).text, "a");
}

TEST(TextStream, AModelWithoutTokenizerHasNoText) {
  TextStream stream(nullptr, {"x"});
  EXPECT_EQ(stream.Add(1), "");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_FALSE(stream.stopped());
}

}  // namespace
}  // namespace strata
