#include "coordinator/http/answer_framing.h"

#include <gtest/gtest.h>

#include <string>

namespace strata {
namespace {

HttpResponse Page() { return {200, "text/plain", "hello", {{"X-One", "a\r\nb"}}}; }

std::string Stream(AnswerFraming framing) {
  std::string out;
  framing.Begin(Page(), &out);
  framing.Piece("", &out);
  framing.Piece(std::string(16, 'x'), &out);
  framing.End("end", &out);
  return out;
}

TEST(AnswerFraming, AWholeAnswerHasItsLengthAndNoHeaderBreaksALine) {
  std::string out;
  AnswerFraming framing(false, true, true);
  EXPECT_FALSE(framing.begun());
  framing.Whole(Page(), &out);
  EXPECT_TRUE(framing.begun());
  EXPECT_FALSE(framing.closes());
  EXPECT_EQ(out,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"
            "Connection: keep-alive\r\nX-One: ab\r\n\r\nhello");
}

TEST(AnswerFraming, AStreamIsOfChunks) {
  EXPECT_EQ(Stream(AnswerFraming(false, true, true)),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n"
            "Connection: keep-alive\r\nX-One: ab\r\n\r\n"
            "5\r\nhello\r\n10\r\nxxxxxxxxxxxxxxxx\r\n3\r\nend\r\n0\r\n\r\n");
}

TEST(AnswerFraming, AStreamWithoutChunksEndsWithItsConnection) {
  EXPECT_EQ(Stream(AnswerFraming(false, false, true)),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nX-One: ab\r\n\r\n"
            "helloxxxxxxxxxxxxxxxxend");
}

TEST(AnswerFraming, NothingFollowsTheHeadOfWhoAskedForTheHeadOnly) {
  std::string out;
  AnswerFraming(true, true, true).Whole(Page(), &out);
  EXPECT_EQ(out,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"
            "Connection: keep-alive\r\nX-One: ab\r\n\r\n");
  EXPECT_EQ(Stream(AnswerFraming(true, true, true)),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n"
            "Connection: keep-alive\r\nX-One: ab\r\n\r\n");
}

TEST(AnswerFraming, AHeadThatIsStillToComeSaysThatTheConnectionEnds) {
  std::string out;
  AnswerFraming framing(false, true, true);
  framing.Close();
  EXPECT_TRUE(framing.closes());
  framing.Whole(Page(), &out);
  EXPECT_NE(out.find("Connection: close\r\n"), std::string::npos) << out;
}

}  // namespace
}  // namespace strata
