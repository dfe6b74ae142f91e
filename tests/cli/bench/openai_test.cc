#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/bench/openai_target.h"
#include "common/status.h"

namespace strata::cli {
namespace {

using ::testing::HasSubstr;

TEST(OpenAi, TheAddressMayEndWhereItLikes) {
  for (const char* url : {"http://a:1", "http://a:1/", "http://a:1/v1", "http://a:1/v1/",
                          "http://a:1/v1/completions"}) {
    EXPECT_EQ(CompletionsUrl(url), "http://a:1/v1/completions");
  }
  EXPECT_EQ(CompletionsUrl("https://a/openai/v1"), "https://a/openai/v1/completions");
}

TEST(OpenAi, TextsHaveAWordForEachIdAndShareWhatTheIdsShare) {
  const std::string text = TextOf({1, 2, 3, 4, 70});
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 4);
  EXPECT_EQ(TextOf({1, 2, 3, 9, 9, 9}).compare(0, 10, text, 0, 10), 0);
  EXPECT_NE(TextOf({1, 2, 3}), TextOf({1, 2, 4}));
}

TEST(OpenAi, AddressesThatAreNoneAreRefused) {
  for (const char* url : {"", "nothing", "ftp://a", "http://a:port"}) {
    const auto target =
        OpenAiTarget::Connect({.url = url, .model = "m", .api_key = ""}, [] { return false; });
    EXPECT_FALSE(target.ok()) << url;
    EXPECT_EQ(ReasonOf(target.status()), "BAD_URL") << url << target.status();
  }
}

TEST(OpenAi, AServerThatIsNotThereIsNamed) {
  const auto target = OpenAiTarget::Connect(
      {.url = "http://127.0.0.1:1", .model = "m", .api_key = ""}, [] { return false; });
  EXPECT_EQ(ReasonOf(target.status()), "UNREACHABLE");
  EXPECT_THAT(Describe(target.status()), HasSubstr("http://127.0.0.1:1"));
}

}  // namespace
}  // namespace strata::cli
