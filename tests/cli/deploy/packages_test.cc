#include "cli/deploy/packages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/digest.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PackagesTest : public ::testing::Test {
 protected:
  PackagesTest() { fs::create_directories(folder_); }
  ~PackagesTest() override { fs::remove_all(folder_); }

  void Put(const std::string& name, const std::string& text = "deb") {
    std::ofstream(folder_ / name) << text;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "packages_test";
};

TEST_F(PackagesTest, TheThreeThatMachinesNeedAreFound) {
  Put("strata-worker_1.2.3_amd64.deb", "of the worker");
  Put("strata-coordinator_1.2.3_amd64.deb");
  Put("strata-cli_1.2.3_amd64.deb");
  Put("strata_1.2.3_all.deb");
  Put("libstrata-dev_1.2.3_amd64.deb");
  Put("strata-1.2.3-linux-x86_64.tar.xz");
  const auto packages = FindPackages(folder_.string());
  ASSERT_TRUE(packages.ok()) << packages.status();
  EXPECT_EQ(packages->size(), 3);
  const Package& worker = packages->at("strata-worker");
  EXPECT_EQ(worker.version, "1.2.3");
  EXPECT_EQ(worker.architecture, "amd64");
  EXPECT_EQ(worker.bytes, 13);
  EXPECT_EQ(worker.sha256, Sha256Hex("of the worker"));
}

TEST_F(PackagesTest, ThoseThatLackAreNamed) {
  Put("strata-worker_1.2.3_amd64.deb");
  const absl::Status status = FindPackages(folder_.string()).status();
  EXPECT_EQ(ReasonOf(status), "PACKAGES_MISSING");
  EXPECT_THAT(strata::Describe(status), HasSubstr("strata-coordinator, strata-cli"));
  EXPECT_EQ(ReasonOf(FindPackages((folder_ / "none").string()).status()), "PACKAGES_MISSING");
}

TEST_F(PackagesTest, TwoVersionsAreRefused) {
  Put("strata-worker_1.2.3_amd64.deb");
  Put("strata-coordinator_1.2.4_amd64.deb");
  Put("strata-cli_1.2.3_amd64.deb");
  EXPECT_EQ(ReasonOf(FindPackages(folder_.string()).status()), "PACKAGES_DIFFER");
  Put("strata-cli_1.2.4_amd64.deb");
  EXPECT_EQ(ReasonOf(FindPackages(folder_.string()).status()), "PACKAGES_DIFFER");
}

}  // namespace
}  // namespace strata::deploy
