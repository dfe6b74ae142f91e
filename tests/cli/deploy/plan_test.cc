#include "cli/deploy/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status.h"

namespace strata::deploy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Packages MakePackages(const std::string& version = "0.2.0") {
  Packages packages;
  for (const char* name : {"strata-coordinator", "strata-worker", "strata-cli"}) {
    packages[name] = {.path = std::string(name) + ".deb",
                      .version = version,
                      .architecture = "amd64",
                      .sha256 = std::string("digest-of-") + name,
                      .bytes = 1};
  }
  return packages;
}

// The machine `c` with the coordinator and a worker, and `w` with a worker.
class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {
    inventory_.coordinator = "c";
    inventory_.machines = {
        {.name = "w", .ssh = "w", .address = "", .worker = true, .worker_settings = {}},
        {.name = "c", .ssh = "c", .address = "", .worker = true, .worker_settings = {}}};
    for (const char* name : {"w", "c"}) {
      facts_[name].system = "debian 12";
      facts_[name].architecture = "amd64";
      facts_[name].root = true;
      facts_[name].systemd = true;
    }
  }

  // As after a deployment.
  void SetDeployed() {
    for (auto& [name, facts] : facts_) {
      facts.units["strata-worker"] = {.active = true, .enabled = true};
      facts.worker_ca_sha256 = "authority";
      facts.worker_config = "# threads = 0\nname = \"" + name + "\"\n";
      Installed(&facts, "strata-worker");
      Installed(&facts, "strata-cli");
    }
    MachineFacts& facts = facts_["c"];
    facts.authority_sha256 = "authority";
    facts.units["strata-coordinator"] = {.active = true, .enabled = true};
    facts.coordinator_config = "listen = \"0.0.0.0:7070\"\n";
    Installed(&facts, "strata-coordinator");
  }

  void Installed(MachineFacts* facts, const std::string& name) {
    facts->packages[name] = {.version = packages_.at(name).version,
                             .sha256 = packages_.at(name).sha256};
  }

  static std::vector<std::string> Words(const absl::StatusOr<std::vector<Step>>& steps,
                                        const Packages& packages) {
    EXPECT_TRUE(steps.ok()) << steps.status();
    std::vector<std::string> words;
    for (const Step& step : steps.value_or(std::vector<Step>())) {
      words.push_back(step.machine + ": " + Describe(step, packages));
    }
    return words;
  }
  std::vector<std::string> Deploys() {
    return Words(PlanDeploy(inventory_, packages_, facts_), packages_);
  }
  std::vector<std::string> Upgrades() {
    return Words(PlanUpgrade(inventory_, packages_, facts_), packages_);
  }
  absl::Status Refusal() { return PlanDeploy(inventory_, packages_, facts_).status(); }

  Inventory inventory_;
  Packages packages_ = MakePackages();
  std::map<std::string, MachineFacts> facts_;
};

TEST_F(PlanTest, OnBareMachinesTheCoordinatorsIsMadeFirst) {
  EXPECT_THAT(
      Deploys(),
      ElementsAre("c: install strata-coordinator 0.2.0, strata-worker 0.2.0, strata-cli 0.2.0",
                  "c: make the cluster's authority and start its services",
                  "w: install strata-worker 0.2.0, strata-cli 0.2.0",
                  "w: join the cluster and start strata-worker"));
}

TEST_F(PlanTest, WhatIsDeployedIsLeftAlone) {
  SetDeployed();
  EXPECT_THAT(Deploys(), IsEmpty());
  EXPECT_THAT(Upgrades(), IsEmpty());
}

TEST_F(PlanTest, FlagsThatTheFileLacksAreSetAndTheServiceStartsAnew) {
  SetDeployed();
  inventory_.machines[0].worker_settings = {{"threads", "4"}, {"name", "w"}};
  inventory_.coordinator_settings = {{"listen", "0.0.0.0:7070"}, {"max-http-memory", "1GiB"}};
  EXPECT_THAT(
      Deploys(),
      ElementsAre("c: set max-http-memory = 1GiB in /etc/strata/coordinator.toml",
                  "c: restart strata-coordinator", "w: set threads = 4 in /etc/strata/worker.toml",
                  "w: restart strata-worker"));
}

TEST_F(PlanTest, FlagsAreSetBeforeTheServiceFirstStarts) {
  inventory_.machines[0].worker_settings = {{"threads", "4"}};
  EXPECT_THAT(Deploys(), ::testing::Contains("w: set threads = 4 in /etc/strata/worker.toml"));
  EXPECT_EQ(Deploys().back(), "w: join the cluster and start strata-worker");
}

TEST_F(PlanTest, AWorkerOfAnotherClusterJoinsThisOne) {
  SetDeployed();
  facts_["w"].worker_ca_sha256 = "of another";
  EXPECT_THAT(Deploys(), ElementsAre("w: join the cluster and start strata-worker"));
}

TEST_F(PlanTest, AWorkerThatTheCoordinatorHearsIsAMemberWhateverAuthorityItJoinedBy) {
  SetDeployed();
  facts_["w"].worker_ca_sha256 = "of the one before";
  facts_["c"].nodes["w"].state = "serving";
  EXPECT_THAT(Deploys(), IsEmpty());
  facts_["c"].nodes["w"].state = "lost";
  EXPECT_THAT(Deploys(), ElementsAre("w: join the cluster and start strata-worker"));
}

TEST_F(PlanTest, AWorkerOfAnotherNameJoinsByThisOne) {
  SetDeployed();
  facts_["w"].worker_config = "name = \"x\"\n";
  EXPECT_THAT(Deploys(), ElementsAre("w: join the cluster and start strata-worker"));
}

TEST_F(PlanTest, AServiceThatDoesNotRunOrWouldNotAfterABootIsStarted) {
  SetDeployed();
  facts_["w"].units["strata-worker"].enabled = false;
  facts_["c"].units["strata-coordinator"].active = false;
  EXPECT_THAT(Deploys(), ElementsAre("c: restart strata-coordinator", "w: restart strata-worker"));
}

TEST_F(PlanTest, AMachineThatIsToHaveNoWorkerLosesIt) {
  SetDeployed();
  inventory_.machines[1].worker = false;
  EXPECT_THAT(Deploys(), ElementsAre("c: stop and disable strata-worker"));
  facts_["c"].units["strata-worker"] = {};
  EXPECT_THAT(Deploys(), IsEmpty());
}

TEST_F(PlanTest, AnotherBuildOfTheSameVersionIsReplaced) {
  SetDeployed();
  facts_["w"].packages["strata-worker"].sha256 = "another";
  EXPECT_THAT(Deploys(), ElementsAre("w: install strata-worker 0.2.0"));
  facts_["w"].packages["strata-worker"].sha256 = "";
  EXPECT_THAT(Deploys(), IsEmpty()) << "somebody else installed that version";
}

TEST_F(PlanTest, AnotherVersionIsLeftToUpgrade) {
  SetDeployed();
  facts_["w"].packages["strata-worker"].version = "0.1.0";
  const absl::Status status = Refusal();
  EXPECT_EQ(ReasonOf(status), "VERSION_DIFFERS");
  EXPECT_THAT(strata::Describe(status), HasSubstr("strata-worker 0.1.0"));
  EXPECT_EQ(DetailOf(status).node(), "w");
}

TEST_F(PlanTest, TheCoordinatorsMachineIsUpgradedLast) {
  SetDeployed();
  packages_ = MakePackages("0.3.0");
  EXPECT_THAT(Upgrades(), ElementsAre("w: install strata-worker 0.3.0, strata-cli 0.3.0",
                                      "c: install strata-coordinator 0.3.0, strata-worker 0.3.0, "
                                      "strata-cli 0.3.0"));
}

TEST_F(PlanTest, MachinesThatCannotBeDeployedToAreNamedBeforeAnythingIsChanged) {
  const auto hears = [&](const std::string& what) {
    const absl::Status status = Refusal();
    EXPECT_EQ(ReasonOf(status), "MACHINE_UNFIT");
    EXPECT_EQ(DetailOf(status).node(), "w");
    EXPECT_THAT(strata::Describe(status), HasSubstr(what));
  };
  facts_["w"].architecture = "arm64";
  hears("of the architecture arm64");
  facts_["w"].root = false;
  hears("not administrated by the user");
  facts_["w"].systemd = false;
  hears("not run by systemd");
  facts_["w"].architecture = "";
  hears("has no dpkg");
}

}  // namespace
}  // namespace strata::deploy
