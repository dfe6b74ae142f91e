#include "common/app/service_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/app/log.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServiceReporterTest : public ::testing::Test {
 protected:
  using Answer = std::function<void(const std::string& status)>;

  ServiceReporterTest() : reporter_(Manager(), {Watched("loop"), Watched("http")}) {}

  ServiceManager Manager() {
    return {.notify = [this](const std::string& lines) { told_.push_back(lines); },
            .watchdog = std::chrono::seconds(4)};
  }
  ServiceReporter::Watched Watched(const std::string& name) {
    return {name, [this, name](Answer answer) { asked_[name].push_back(std::move(answer)); }};
  }
  // All that were asked answer.
  void AllAnswer(const std::string& status = "") {
    for (auto& [name, answers] : asked_) {
      for (const Answer& answer : answers) answer(status);
      answers.clear();
    }
  }

  std::vector<std::string> told_;
  std::map<std::string, std::vector<Answer>> asked_;
  ServiceReporter reporter_;
};

TEST_F(ServiceReporterTest, AThreadThatIsSilentKeepsTheManagerFromHearingOfAnyLife) {
  reporter_.Look(std::chrono::seconds(0));
  EXPECT_EQ(asked_["loop"].size(), 1u);
  asked_["http"].front()("");
  for (int s = 1; s < 100; ++s) reporter_.Look(std::chrono::seconds(s));
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(asked_["loop"].size(), 1u) << "asked once, not each time";
  asked_["loop"].front()("");
  reporter_.Look(std::chrono::seconds(100));
  EXPECT_THAT(told_, ElementsAre("WATCHDOG=1\n"));
}

TEST_F(ServiceReporterTest, LifeIsToldThriceAndMoreWithinTheManagersPatience) {
  EXPECT_LE(reporter_.every() * 3, std::chrono::seconds(4));
  for (int i = 0; i < 3; ++i) {
    reporter_.Look(i * reporter_.every());
    AllAnswer();
    reporter_.Look(i * reporter_.every() + std::chrono::milliseconds(1));
    EXPECT_EQ(told_.size(), static_cast<size_t>(i + 1));
    reporter_.Look(i * reporter_.every() + std::chrono::milliseconds(2));
    EXPECT_EQ(told_.size(), static_cast<size_t>(i + 1)) << "nobody is asked before it is time";
  }
}

TEST_F(ServiceReporterTest, AStatusIsToldWhenItChanges) {
  for (const char* status : {"one model", "one model", "two models"}) {
    reporter_.Look(std::chrono::seconds(10 * static_cast<int>(told_.size() + 1)));
    AllAnswer(status);
    reporter_.Look(std::chrono::seconds(10 * static_cast<int>(told_.size() + 1)));
  }
  EXPECT_THAT(told_, ElementsAre("WATCHDOG=1\nSTATUS=one model\n", "WATCHDOG=1\n",
                                 "WATCHDOG=1\nSTATUS=two models\n"));
}

TEST_F(ServiceReporterTest, TheLogNamesWhoIsSilentOnce) {
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(SetUpLogging("info", "text").ok());
  reporter_.Look(std::chrono::seconds(0));
  asked_["http"].front()("");
  for (int s = 1; s < 20; ++s) reporter_.Look(std::chrono::seconds(s));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("no sign of life from loop;"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST_F(ServiceReporterTest, AnAnswerAfterTheEndHarmsNobody) {
  Answer late;
  {
    ServiceReporter reporter(Manager(),
                             {{"loop", [&](Answer answer) { late = std::move(answer); }}});
    reporter.Look(std::chrono::seconds(0));
  }
  late("too late");
  EXPECT_THAT(told_, IsEmpty());
}

TEST(ServiceLines, AStatusIsOneLine) {
  EXPECT_EQ(StatusLine("a\nREADY=1"), "STATUS=a\\nREADY=1\n");
  EXPECT_EQ(StoppingLines("ends", std::chrono::seconds(2)),
            "STOPPING=1\nSTATUS=ends\nEXTEND_TIMEOUT_USEC=2000000\n");
}

}  // namespace
}  // namespace strata
