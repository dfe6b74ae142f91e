#include "common/discovery/announcer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/mutex.h"
#include "common/status.h"
#include "tests/eventually.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Its avahi-publish writes its words to a file, and goes on or ends as a file beside it says.
class AnnouncerTest : public ::testing::Test {
 protected:
  AnnouncerTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    Make("avahi-publish",
         "#!/bin/sh\n"
         "echo \"$@\" >>" +
             said_ +
             "\n"
             "[ -e " +
             folder_ +
             "/fails ] && { echo 'Daemon not running' >&2; exit 1; }\n"
             "exec sleep 600\n");
    setenv("PATH", (folder_ + ":" + before_).c_str(), 1);
  }
  ~AnnouncerTest() override {
    setenv("PATH", before_.c_str(), 1);
    fs::remove_all(folder_);
  }

  void Make(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    fs::permissions(folder_ + "/" + name, fs::perms::owner_all);
  }
  std::string Said() const {
    std::ifstream in(said_);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  const std::string folder_ = ::testing::TempDir() + "strata-announcer";
  const std::string said_ = folder_ + "/said";
  const std::string before_ = std::getenv("PATH");
};

TEST_F(AnnouncerTest, AnnouncesAnewWhatHasChanged) {
  Mutex mutex;
  std::string authority = "aa";
  Announcer announcer;
  announcer.Start([&] {
    MutexLock lock(&mutex);
    return Announcement{.name = "home on a", .port = 7069, .facts = {"ca=" + authority}};
  });
  EXPECT_TRUE(
      Eventually([&] { return Said() == "--service home on a _strata._tcp 7069 ca=aa\n"; }));
  {
    MutexLock lock(&mutex);
    authority = "bb";
  }
  EXPECT_TRUE(Eventually(
      [&] { return Said().ends_with("--service home on a _strata._tcp 7069 ca=bb\n"); }));
  EXPECT_TRUE(Eventually([&] { return announcer.problem().ok(); }));
  announcer.Stop();
}

TEST_F(AnnouncerTest, SaysWhyItCannotAndTriesAgain) {
  std::ofstream(folder_ + "/fails") << "";
  Announcer announcer;
  announcer.Start([] { return Announcement{.name = "home", .port = 7069}; });
  EXPECT_TRUE(Eventually([&] { return ReasonOf(announcer.problem()) == "NOT_ANNOUNCED"; }));
  EXPECT_THAT(std::string(announcer.problem().message()), HasSubstr("Daemon not running"));
  fs::remove(folder_ + "/fails");
  EXPECT_TRUE(Eventually([&] { return announcer.problem().ok(); }));
}

TEST_F(AnnouncerTest, AProgramThatIsNotThereIsNamed) {
  fs::remove(folder_ + "/avahi-publish");
  setenv("PATH", folder_.c_str(), 1);
  Announcer announcer;
  announcer.Start([] { return Announcement{.name = "home", .port = 7069}; });
  EXPECT_TRUE(Eventually([&] { return ReasonOf(announcer.problem()) == "NOT_ANNOUNCED"; }));
  EXPECT_THAT(DetailOf(announcer.problem()).hint(), HasSubstr("avahi-utils"));
}

}  // namespace
}  // namespace strata
