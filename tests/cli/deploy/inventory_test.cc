#include "cli/deploy/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status.h"

namespace strata::deploy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr char kTwo[] = R"(
name = "home"
packages = "debs"

[coordinator]
machine = "zeta"
max-http-memory = "1GiB"

[machines.zeta]
ssh = "root@10.77.0.1"
worker = false

[machines.alpha]
ssh = "gpu-box"
address = "10.77.0.2"
memory = "24GiB"
threads = 4
)";

std::string Refusal(const std::string& text) {
  const auto inventory = ParseInventory(text, "inv.toml");
  EXPECT_EQ(ReasonOf(inventory.status()), "BAD_INVENTORY") << text;
  return strata::Describe(inventory.status());
}

// An inventory with one machine, and lines about it.
std::string With(const std::string& lines, const std::string& name = "a") {
  return "packages = \"d\"\n[coordinator]\nmachine = \"" + name + "\"\n[machines." + name +
         "]\nssh = \"root@h\"\n" + lines;
}

TEST(InventoryTest, MachinesAreReadInTheOrderOfTheFile) {
  const auto inventory = ParseInventory(kTwo, "inv.toml");
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_EQ(inventory->cluster, "home");
  EXPECT_EQ(inventory->packages, "debs");
  EXPECT_EQ(inventory->CoordinatorMachine().name, "zeta");
  EXPECT_THAT(inventory->coordinator_settings, ElementsAre(Pair("max-http-memory", "1GiB")));
  ASSERT_EQ(inventory->machines.size(), 2);
  const Machine& zeta = inventory->machines[0];
  EXPECT_EQ(zeta.name, "zeta");
  EXPECT_EQ(zeta.ssh, "root@10.77.0.1");
  EXPECT_FALSE(zeta.worker);
  EXPECT_THAT(zeta.worker_settings, IsEmpty());
  const Machine& alpha = inventory->machines[1];
  EXPECT_EQ(alpha.ssh, "gpu-box");
  EXPECT_EQ(alpha.address, "10.77.0.2");
  EXPECT_TRUE(alpha.worker);
  EXPECT_THAT(alpha.worker_settings, ElementsAre(Pair("memory", "24GiB"), Pair("threads", "4")));
}

TEST(InventoryTest, WhatIsNoTomlIsRefusedWithItsLine) {
  EXPECT_THAT(Refusal("packages = \"d\"\nname = \n"), HasSubstr("inv.toml:2: "));
}

TEST(InventoryTest, UnknownKeysAreRefusedWithTheirLine) {
  EXPECT_THAT(Refusal("packages = \"d\"\nnaem = \"x\"\n"),
              HasSubstr("inv.toml:2: 'naem' is none of"));
}

TEST(InventoryTest, WhatDeployingSetsItselfIsRefused) {
  EXPECT_THAT(Refusal(With("tls-dir = \"/t\"\n")), HasSubstr("'tls-dir' is set by"));
  EXPECT_THAT(Refusal(With("coordinator = \"a:1\"\n")), HasSubstr("'coordinator' is set by"));
}

TEST(InventoryTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(Refusal("name = \"x\"\n"), HasSubstr("`packages` is missing"));
  EXPECT_THAT(Refusal("packages = \"d\"\n"), HasSubstr("[coordinator] is missing"));
  EXPECT_THAT(
      Refusal("packages = \"d\"\n[coordinator]\nmachine = \"b\"\n[machines.a]\nssh = \"h\"\n"),
      HasSubstr("'b' is none of the [machines.NAME]"));
  EXPECT_THAT(Refusal("packages = \"d\"\n[coordinator]\n[machines.a]\nssh = \"h\"\n"),
              HasSubstr("[coordinator] lacks `machine`"));
  EXPECT_THAT(Refusal("packages = \"d\"\n[machines.a]\nmemory = \"1GiB\"\n"),
              HasSubstr("[machines.a] lacks `ssh`"));
}

TEST(InventoryTest, ADestinationThatWouldBeAnOptionOfSshIsRefused) {
  EXPECT_THAT(Refusal("packages = \"d\"\n[machines.a]\nssh = \"-oProxyCommand=x\"\n"),
              HasSubstr("lacks `ssh`"));
}

TEST(InventoryTest, NamesAreThoseOfNodes) {
  EXPECT_THAT(Refusal(With("", "\"a b\"")), HasSubstr("inv.toml:"));
}

TEST(InventoryTest, ValuesOfOtherKindsAreRefused) {
  EXPECT_THAT(Refusal(With("worker = \"yes\"\n")), HasSubstr("'worker' is true or false"));
  EXPECT_THAT(Refusal(With("memory = [1]\n")), HasSubstr("'memory' is to be a text"));
}

TEST(InventoryTest, ALongFileIsRefused) {
  EXPECT_THAT(Refusal(std::string(kMaxInventoryBytes + 1, '#')), HasSubstr("is too large"));
}

}  // namespace
}  // namespace strata::deploy
