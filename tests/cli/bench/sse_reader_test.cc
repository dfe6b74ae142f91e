#include "cli/bench/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::cli {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Read(const std::string& text, size_t piece) {
  SseReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size(); at += piece) {
    EXPECT_TRUE(reader.Feed(std::string_view(text).substr(at, piece),
                            [&](std::string_view data) { events.emplace_back(data); }));
  }
  return events;
}

TEST(SseReader, ReadsTheSameInPiecesOfAnySize) {
  const std::string text =
      ": a comment\n\ndata: {\"a\":1}\n\nevent: x\nid: 3\ndata:no space\r\n\r\ndata: one\ndata: "
      "two\n"
      "\n\n\ndata:\n\ndata: [DONE]\n\ndata: never ended\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_THAT(Read(text, piece), ElementsAre("{\"a\":1}", "no space", "one\ntwo", "", "[DONE]"))
        << piece;
  }
}

TEST(SseReader, GivesUpOnALineWithoutEnd) {
  SseReader reader;
  const std::string piece(1 << 20, 'x');
  int taken = 0;
  while (taken < 100 && reader.Feed(piece, [](std::string_view) {})) ++taken;
  EXPECT_EQ(taken, 16);
}

TEST(SseReader, GivesUpOnAnEventWithoutEnd) {
  SseReader reader;
  const std::string line = "data: " + std::string(1 << 20, 'x') + "\n";
  int taken = 0;
  while (taken < 100 && reader.Feed(line, [](std::string_view) {})) ++taken;
  EXPECT_LT(taken, 17);
}

}  // namespace
}  // namespace strata::cli
