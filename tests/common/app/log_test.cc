#include "common/app/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace strata {
namespace {

class LogTest : public ::testing::Test {
 protected:
  static void SetUpFor(const std::string& level, const std::string& format) {
    ASSERT_TRUE(SetUpLogging(level, format).ok());
  }
  template <typename F>
  static std::string Captured(F log) {
    ::testing::internal::CaptureStderr();
    log();
    return ::testing::internal::GetCapturedStderr();
  }
};

void LogARequest() {
  LogInfo({{"request_id", std::string("r-1")},
           {"model", "m"},
           {"node", ""},
           {"epoch", 7u},
           {"total_ms", 12.34567}},
          "a request ended");
}

TEST_F(LogTest, TextHasTheMessageThenTheFields) {
  SetUpFor("info", "text");
  const std::string line = Captured(LogARequest);
  EXPECT_NE(line.find("I a request ended request_id=r-1 model=m epoch=7 total_ms=12.346\n"),
            std::string::npos)
      << line;
}

TEST_F(LogTest, JsonHasTheFieldsBesideTheMessage) {
  SetUpFor("info", "json");
  const auto line = nlohmann::json::parse(Captured(LogARequest));
  EXPECT_EQ(line["message"], "a request ended");
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["request_id"], "r-1");
  EXPECT_EQ(line["epoch"], 7);
  EXPECT_EQ(line["total_ms"], 12.346);
  EXPECT_FALSE(line.contains("node"));
  EXPECT_GT(line["time_ms"], 0);
}

TEST_F(LogTest, AValueCannotLookLikeOtherFieldsOrLines) {
  const auto log = [] {
    LogWarn({{"request_id", "x reason=stop\nI a request ended"}}, "a request failed {}");
  };
  SetUpFor("info", "text");
  const std::string text = Captured(log);
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
  EXPECT_NE(text.find(R"(a request failed {} request_id="x reason=stop\nI a request ended")"),
            std::string::npos)
      << text;
  SetUpFor("info", "json");
  const auto line = nlohmann::json::parse(Captured(log));
  EXPECT_EQ(line["request_id"], "x reason=stop\nI a request ended");
  EXPECT_FALSE(line.contains("reason"));
}

TEST_F(LogTest, WhatATerminalObeysIsEscaped) {
  SetUpFor("info", "text");
  const std::string line = Captured([] {
    LogWarn({{"node", "n\x1b[2J\xc2\x9b"}}, "says \x1b]0;x\x07\nI a request ended");
  });
  EXPECT_EQ(line.find('\x1b', line.find("says")), std::string::npos) << line;
  EXPECT_EQ(line.find("\xc2\x9b"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
}

TEST_F(LogTest, FieldsBelongToTheirLineAlone) {
  SetUpFor("info", "text");
  EXPECT_EQ(Captured([] {
              LogInfo({{"request_id", "r-1"}}, "one");
              LogInfo({}, "two");
            }).find("two request_id"),
            std::string::npos);
}

TEST_F(LogTest, LinesBelowTheLevelAreLeftOut) {
  SetUpFor("info", "text");
  EXPECT_EQ(Captured([] { LogDebug({{"request_id", "r-1"}}, "a request starts"); }), "");
  EXPECT_FALSE(LogEnabled(LogLevel::kDebug));
  EXPECT_TRUE(LogEnabled(LogLevel::kWarn));
  SetUpFor("debug", "text");
  EXPECT_NE(Captured([] { LogDebug({}, "a request starts"); }), "");
}

TEST_F(LogTest, JsonLinesNameTheNodeOfTheProcessUnlessTheyNameAnother) {
  SetLogNode("worker-a");
  SetUpFor("info", "json");
  EXPECT_EQ(nlohmann::json::parse(Captured([] { LogInfo({}, "x"); }))["node"], "worker-a");
  EXPECT_EQ(nlohmann::json::parse(Captured([] { LogInfo({{"node", "b"}}, "x"); }))["node"], "b");
  SetLogNode("");
}

TEST_F(LogTest, WhatIsNoLevelOrFormatIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(SetUpLogging("loud", "text")));
  EXPECT_TRUE(absl::IsInvalidArgument(SetUpLogging("info", "xml")));
}

TEST_F(LogTest, TheNewestLinesAreKeptWithoutDebug) {
  SetUpFor("debug", "text");
  Captured([] {
    LogInfo({{"request_id", "r-1"}}, "one");
    LogDebug({}, "not kept");
    LogWarn({}, std::string(2 * kMaxKeptLineBytes, 'x'));
  });
  const std::vector<std::string> lines = RecentLogLines(2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].ends_with("info one request_id=r-1")) << lines[0];
  EXPECT_NE(lines[1].find("warn xxx"), std::string::npos);
  EXPECT_LE(lines[1].size(), kMaxKeptLineBytes);
  Captured([] {
    for (size_t i = 0; i < kKeptLogLines + 5; ++i) LogInfo({}, "line " + std::to_string(i));
  });
  EXPECT_EQ(RecentLogLines(kKeptLogLines * 2).size(), kKeptLogLines);
  EXPECT_TRUE(RecentLogLines(1).front().ends_with("line 2004"));
  EXPECT_TRUE(RecentLogLines(0).empty());
}

}  // namespace
}  // namespace strata
