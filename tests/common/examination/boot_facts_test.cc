#include "common/examination/boot_facts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace strata {
namespace {

namespace fs = std::filesystem;

class BootFactsTest : public ::testing::Test {
 protected:
  BootFactsTest()
      : root_((fs::path(::testing::TempDir()) /
               ("boot-" +
                std::string(::testing::UnitTest::GetInstance()->current_test_info()->name())))
                  .string()) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/run/systemd/system");
    facts_.set_unit("strata-worker.service");
    facts_.set_user("me");
    Write("/usr/lib/systemd/system/strata-worker.service",
          "[Unit]\nAfter=network-online.target strata-coordinator.service\n");
  }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void Link(const std::string& path) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    fs::create_symlink("/usr/lib/systemd/system/whatever", root_ + path);
  }
  void Look() { LookAtUnit(root_, "/home/me", &facts_); }

  const std::string root_;
  v1::BootFacts facts_;
};

TEST_F(BootFactsTest, AUnitThatATargetWantsIsEnabled) {
  Look();
  EXPECT_TRUE(facts_.systemd());
  EXPECT_TRUE(facts_.unit_found());
  EXPECT_FALSE(facts_.unit_enabled());
  Link("/etc/systemd/system/multi-user.target.wants/strata-worker.service");
  Look();
  EXPECT_TRUE(facts_.unit_enabled());
}

TEST_F(BootFactsTest, AnInstanceIsOfItsTemplate) {
  facts_.set_unit("strata-worker@a.service");
  Look();
  EXPECT_FALSE(facts_.unit_found());
  Write("/usr/lib/systemd/system/strata-worker@.service", "[Unit]\nAfter=network.target\n");
  Link("/etc/systemd/system/multi-user.target.wants/strata-worker@b.service");
  Look();
  EXPECT_TRUE(facts_.unit_found());
  EXPECT_FALSE(facts_.unit_enabled());
  EXPECT_FALSE(facts_.waits_for_network());
  Write("/etc/systemd/system/strata-worker@a.service.d/override.conf",
        "[Unit]\nAfter=network-online.target\n");
  Look();
  EXPECT_TRUE(facts_.waits_for_network());
}

TEST_F(BootFactsTest, UnitsOfUsersWantThatTheyLinger) {
  facts_.set_user_unit(true);
  Write("/home/me/.config/systemd/user/strata-worker.service", "[Unit]\n");
  Look();
  EXPECT_TRUE(facts_.unit_found());
  EXPECT_TRUE(facts_.waits_for_network());
  EXPECT_FALSE(facts_.lingers());
  Write("/var/lib/systemd/linger/me", "");
  Look();
  EXPECT_TRUE(facts_.lingers());
}

TEST_F(BootFactsTest, WithoutSystemdThereIsNothingToSay) {
  fs::remove_all(root_ + "/run");
  Look();
  EXPECT_FALSE(facts_.systemd());
}

TEST_F(BootFactsTest, TheUnitOfAProcessIsInItsCgroup) {
  bool user = true;
  Write("/proc/self/cgroup", "0::/system.slice/strata-worker@a.service\n");
  EXPECT_EQ(UnitOfProcess(root_, &user), "strata-worker@a.service");
  EXPECT_FALSE(user);
  Write("/proc/self/cgroup",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/strata-worker.service\n");
  EXPECT_EQ(UnitOfProcess(root_, &user), "strata-worker.service");
  EXPECT_TRUE(user);
  Write("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n");
  EXPECT_EQ(UnitOfProcess(root_, &user), "");
}

TEST(UnitOfConfigTest, PackagesFilesHaveUnits) {
  EXPECT_EQ(UnitOfConfig("/etc/strata/coordinator.toml"), "strata-coordinator.service");
  EXPECT_EQ(UnitOfConfig("/etc/strata/worker.toml"), "strata-worker.service");
  EXPECT_EQ(UnitOfConfig("/etc/strata/worker-gpu0.toml"), "strata-worker@gpu0.service");
  EXPECT_EQ(UnitOfConfig("/etc/strata/other.toml"), "");
  EXPECT_EQ(UnitOfConfig("/home/me/worker.toml"), "");
  EXPECT_EQ(UnitOfConfig("/etc/strata/worker.toml.bak"), "");
}

}  // namespace
}  // namespace strata
