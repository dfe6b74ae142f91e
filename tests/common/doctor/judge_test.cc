#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/doctor/findings.h"

namespace strata::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string AddressOf(const std::string& node) {
  if (node.empty()) return "10.0.0.1:7070";
  return node == "a" ? "10.0.0.2:7071" : "10.0.0.3:7071";
}

v1::MachineFacts Machine(const std::string& node) {
  v1::MachineFacts facts;
  facts.set_program(node.empty() ? "strata-coordinator" : "strata-worker");
  facts.set_node(node);
  facts.set_version("1.2.3");
  facts.set_machine("machine of " + node);
  facts.set_address(AddressOf(node));
  facts.add_machine_addresses(AddressOf(node).substr(0, 8));
  if (!node.empty()) facts.set_clock_error_s(0.002);
  facts.mutable_memory()->set_total_bytes(16 * kGiB);
  facts.mutable_memory()->set_available_bytes(12 * kGiB);
  facts.mutable_memory()->set_resident_bytes(kGiB);
  facts.mutable_memory()->set_promised_bytes(node.empty() ? 0 : 8 * kGiB);
  facts.mutable_disk()->set_path("/var/lib/strata");
  facts.mutable_disk()->set_total_bytes(100 * kGiB);
  facts.mutable_disk()->set_free_bytes(50 * kGiB);
  facts.mutable_disk()->set_writable(true);
  facts.mutable_certificate()->set_folder("/etc/strata/tls");
  if (!node.empty()) {
    facts.mutable_processor()->set_backend("cpu");
    facts.mutable_processor()->set_isa("avx2");
    facts.mutable_processor()->set_built_isa("avx2");
    facts.mutable_processor()->set_best_isa("avx2");
    facts.mutable_processor()->add_backends("cpu");
  }
  v1::BootFacts* boot = facts.mutable_boot();
  boot->set_systemd(true);
  boot->set_unit(facts.program() + ".service");
  boot->set_unit_found(true);
  boot->set_unit_enabled(true);
  boot->set_waits_for_network(true);
  boot->set_lingers(true);
  boot->set_user("strata");
  boot->set_config("/etc/strata/file.toml");
  return facts;
}

v1::LinkFacts Link(const std::string& from, const std::string& to) {
  v1::LinkFacts link;
  link.set_from(from);
  link.set_to(to);
  link.set_address(AddressOf(to));
  link.set_round_trip_ms(0.3);
  link.set_bytes_per_s(110e6);
  link.set_segments(100);
  link.set_planned_bytes_per_s(112e6);
  return link;
}

// A coordinator and the workers a and b, on machines of their own.
class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() {
    for (const char* name : {"a", "b"}) {
      v1::Node* node = facts_.add_nodes();
      node->set_name(name);
      node->set_state("serving");
      node->set_address(AddressOf(name));
      node->set_version("1.2.3");
    }
    for (const char* name : {"", "a", "b"}) {
      *facts_.add_machines() = Machine(name);
      for (const char* other : {"", "a", "b"}) {
        if (std::string(name) != other) *facts_.add_links() = Link(name, other);
      }
    }
    facts_.set_clock_error_s(0.01);
    facts_.set_client_version("1.2.3");
  }

  v1::MachineFacts* machine(const std::string& node) {
    return facts_.mutable_machines(node.empty() ? 0 : node == "a" ? 1 : 2);
  }
  v1::Node* node(const std::string& name) { return facts_.mutable_nodes(name == "a" ? 0 : 1); }
  v1::LinkFacts* link(const std::string& from, const std::string& to) {
    for (v1::LinkFacts& one : *facts_.mutable_links()) {
      if (one.from() == from && one.to() == to) return &one;
    }
    return nullptr;
  }
  void Fail(const std::string& from, const std::string& to, const std::string& cause) {
    link(from, to)->mutable_error()->set_reason(cause);
    link(from, to)->mutable_error()->set_message("it says " + cause);
    link(from, to)->set_bytes_per_s(0);
    link(from, to)->set_segments(0);
  }
  // "KIND node", of each finding.
  std::vector<std::string> Found() {
    found_ = Judge(facts_);
    std::vector<std::string> names;
    for (const Finding& finding : found_) {
      EXPECT_FALSE(finding.what.empty());
      EXPECT_FALSE(finding.remedy.empty()) << finding.kind;
      names.push_back(finding.kind + (finding.node.empty() ? "" : " " + finding.node));
    }
    return names;
  }
  const std::string& remedy() const { return found_.front().remedy; }

  v1::ClusterFacts facts_;
  std::vector<Finding> found_;
};

TEST_F(JudgeTest, NothingIsFoundOnAHealthyCluster) { EXPECT_THAT(Found(), IsEmpty()); }

TEST_F(JudgeTest, NothingIsFoundWithoutWorkers) {
  v1::ClusterFacts alone;
  *alone.add_machines() = Machine("");
  EXPECT_THAT(Judge(alone), IsEmpty());
  EXPECT_THAT(Judge({}), IsEmpty());
}

TEST_F(JudgeTest, ALostNodeIsOneFinding) {
  node("b")->set_state("lost");
  Fail("", "b", "CONNECTION_REFUSED");
  Fail("a", "b", "CONNECTION_REFUSED");
  machine("b")->mutable_error()->set_reason("UNAVAILABLE");
  EXPECT_THAT(Found(), ElementsAre("NODE_LOST b"));
  EXPECT_THAT(remedy(), HasSubstr("systemctl restart strata-worker"));
}

TEST_F(JudgeTest, AnUnfitNodeSaysWhy) {
  node("b")->set_state("unfit");
  node("b")->set_unfit("its GPU fell off the bus");
  EXPECT_THAT(Found(), ElementsAre("NODE_UNFIT b"));
  EXPECT_THAT(found_.front().what, HasSubstr("fell off"));
}

TEST_F(JudgeTest, AClosedPortIsOfWhoListens) {
  Fail("", "b", "CONNECTION_REFUSED");
  Fail("a", "b", "CONNECTION_REFUSED");
  machine("b")->mutable_error()->set_reason("UNAVAILABLE");
  EXPECT_THAT(Found(), ElementsAre("PORT_CLOSED b"));
  EXPECT_THAT(remedy(), HasSubstr("7071"));
}

TEST_F(JudgeTest, AFirewallThatDropsIsToldFromOneThatRefuses) {
  Fail("", "b", "CONNECTION_TIMED_OUT");
  Fail("a", "b", "CONNECTION_TIMED_OUT");
  machine("b")->mutable_error()->set_reason("UNAVAILABLE");
  EXPECT_THAT(Found(), ElementsAre("PORT_SILENT b"));
}

TEST_F(JudgeTest, OneDirectionBetweenTwoWorkers) {
  Fail("a", "b", "CONNECTION_TIMED_OUT");
  EXPECT_THAT(Found(), ElementsAre("FIREWALL_ONE_WAY b"));
  EXPECT_THAT(remedy(), HasSubstr("let node a through"));
}

TEST_F(JudgeTest, OneDirectionFromTheCoordinator) {
  // The worker's control stream is open, though it cannot be asked.
  Fail("", "b", "CONNECTION_TIMED_OUT");
  machine("b")->mutable_error()->set_reason("UNAVAILABLE");
  EXPECT_THAT(Found(), ElementsAre("FIREWALL_ONE_WAY b"));
  EXPECT_THAT(remedy(), HasSubstr("let the coordinator through"));
}

TEST_F(JudgeTest, BothDirectionsBetweenTwoAreOneFinding) {
  Fail("a", "b", "CONNECTION_TIMED_OUT");
  Fail("b", "a", "CONNECTION_REFUSED");
  EXPECT_THAT(Found(), ElementsAre("LINK_BLOCKED b"));
}

TEST_F(JudgeTest, ACoordinatorsAddressThatNobodyReachesIsTold) {
  Fail("a", "", "CONNECTION_REFUSED");
  Fail("b", "", "CONNECTION_REFUSED");
  EXPECT_THAT(Found(), ElementsAre("PORT_CLOSED"));
}

TEST_F(JudgeTest, ANameThatDoesNotResolve) {
  Fail("a", "b", "NAME_NOT_RESOLVED");
  EXPECT_THAT(Found(), ElementsAre("ADDRESS_UNREACHABLE b"));
}

TEST_F(JudgeTest, AnotherNodeAtTheAdvertisedAddress) {
  Fail("a", "b", "WRONG_NODE");
  EXPECT_THAT(Found(), ElementsAre("ADVERTISE_WRONG b"));
  EXPECT_THAT(remedy(), HasSubstr("--advertise"));
}

TEST_F(JudgeTest, LoopbackIsNoAddressForOthers) {
  for (const char* from : {"", "a"}) {
    Fail(from, "b", "CONNECTION_REFUSED");
    link(from, "b")->set_address("127.0.0.1:7071");
  }
  machine("b")->mutable_error()->set_reason("UNAVAILABLE");
  EXPECT_THAT(Found(), ElementsAre("ADVERTISE_LOOPBACK b"));
  EXPECT_THAT(remedy(), HasSubstr("--advertise"));
}

TEST_F(JudgeTest, WhoWasRefusedForItsAddressIsTold) {
  v1::RefusedFacts* refused = facts_.add_refused();
  refused->set_node("c");
  refused->set_address("127.0.0.1:7071");
  refused->mutable_error()->set_reason("ADVERTISED_ADDRESS");
  (*refused->mutable_error()->mutable_facts())["cause"] = "CONNECTION_REFUSED";
  EXPECT_THAT(Found(), ElementsAre("ADVERTISE_LOOPBACK c"));
  (*refused->mutable_error()->mutable_facts())["cause"] = "WRONG_NODE";
  refused->set_address("10.0.0.2:7071");
  EXPECT_THAT(Found(), ElementsAre("ADVERTISE_WRONG c"));
}

TEST_F(JudgeTest, WhoWasRefusedAndIsThereNowIsNotTold) {
  v1::RefusedFacts* refused = facts_.add_refused();
  refused->set_node("b");
  refused->mutable_error()->set_reason("BAD_NODE_INFO");
  EXPECT_THAT(Found(), IsEmpty());
  refused->set_node("c");
  EXPECT_THAT(Found(), ElementsAre("JOIN_REFUSED c"));
  refused->set_node("b");
  refused->mutable_error()->set_reason("NAME_TAKEN");
  EXPECT_THAT(Found(), ElementsAre("NAME_TAKEN b"));
}

TEST_F(JudgeTest, AConnectionThatWasRefusedForItsCertificate) {
  v1::RefusedFacts* refused = facts_.add_refused();
  refused->mutable_error()->set_reason("TLS_WRONG_CA");
  refused->mutable_error()->set_message("the certificate of CN=x is of another authority");
  refused->set_age_s(12);
  EXPECT_THAT(Found(), ElementsAre("CERTIFICATE_WRONG_AUTHORITY"));
  EXPECT_THAT(found_.front().what, HasSubstr("12 s ago: the certificate of CN=x"));
}

TEST_F(JudgeTest, WhoTakesConnectionsAndSaysNothing) {
  Fail("", "b", "SAYS_NOTHING");
  Fail("a", "b", "SAYS_NOTHING");
  machine("b")->mutable_error()->set_reason("DEADLINE_EXCEEDED");
  EXPECT_THAT(Found(), ElementsAre("NODE_SILENT b"));
  // Or it shakes hands, and does not answer what it is asked.
  for (const char* from : {"", "a"}) link(from, "b")->clear_error();
  EXPECT_THAT(Found(), ElementsAre("NODE_SILENT b"));
}

TEST_F(JudgeTest, AClockIsOffWhereTheOthersAgree) {
  machine("b")->set_clock_offset_s(-3600);
  EXPECT_THAT(Found(), ElementsAre("CLOCK_OFF b"));
  EXPECT_THAT(found_.front().measured, HasSubstr("3600.0 s"));
  EXPECT_THAT(found_.front().what, HasSubstr("behind"));
  EXPECT_THAT(remedy(), HasSubstr("timedatectl set-ntp true"));
}

TEST_F(JudgeTest, TheCoordinatorsClockIsOffWhereItAloneDiffers) {
  for (const char* name : {"a", "b"}) machine(name)->set_clock_offset_s(100);
  facts_.set_clock_offset_s(-100);
  EXPECT_THAT(Found(), ElementsAre("CLOCK_OFF"));
}

TEST_F(JudgeTest, ARoundTripThatLastsLongIsNoSkew) {
  machine("b")->set_clock_offset_s(3);
  EXPECT_THAT(Found(), ElementsAre("CLOCK_OFF b"));
  machine("b")->set_clock_error_s(1.5);
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(JudgeTest, EachFaultOfACertificateHasItsKind) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"TLS_EXPIRED", "CERTIFICATE_LAPSED"},
      {"TLS_NOT_YET_VALID", "CERTIFICATE_NOT_YET_VALID"},
      {"TLS_WRONG_NAME", "CERTIFICATE_WRONG_NAME"},
      {"TLS_WRONG_CA", "CERTIFICATE_WRONG_AUTHORITY"},
      {"TLS_KEY_MISMATCH", "KEY_OF_ANOTHER"},
      {"TLS_FILE_MISSING", "CERTIFICATE_UNUSABLE"}};
  for (const auto& [reason, kind] : kinds) {
    machine("b")->mutable_certificate()->mutable_error()->set_reason(reason);
    machine("b")->mutable_certificate()->mutable_error()->set_message("it is so");
    EXPECT_THAT(Found(), ElementsAre(kind + " b"));
    EXPECT_THAT(remedy(), HasSubstr("strata cluster certificate worker b"));
  }
}

TEST_F(JudgeTest, ACertificateOfTheOtherEndIsToldOnce) {
  Fail("", "b", "TLS_WRONG_CA");
  Fail("a", "b", "TLS_WRONG_CA");
  machine("b")->mutable_error()->set_reason("UNAVAILABLE");
  EXPECT_THAT(Found(), ElementsAre("CERTIFICATE_WRONG_AUTHORITY b"));
  for (const char* from : {"", "a"}) link(from, "b")->mutable_error()->set_reason("NO_TLS");
  EXPECT_THAT(Found(), ElementsAre("TLS_ON_ONE_SIDE b"));
}

TEST_F(JudgeTest, ACertificateThatEndsSoon) {
  machine("b")->mutable_certificate()->set_ends_soon("expires on 2026-12-01");
  EXPECT_THAT(Found(), ElementsAre("CERTIFICATE_ENDS_SOON b"));
}

TEST_F(JudgeTest, AKeyThatOthersMayRead) {
  machine("")->mutable_certificate()->set_key_open(true);
  machine("")->mutable_certificate()->set_key_mode(0644);
  EXPECT_THAT(Found(), ElementsAre("KEY_READABLE"));
  EXPECT_EQ(found_.front().measured, "mode 644");
  EXPECT_THAT(remedy(), HasSubstr("chmod"));
}

TEST_F(JudgeTest, MemoryThatIsNotThere) {
  machine("b")->mutable_memory()->set_available_bytes(kGiB);
  EXPECT_THAT(Found(), ElementsAre("MEMORY_SHORT b"));
  EXPECT_THAT(remedy(), HasSubstr("--memory"));
}

TEST_F(JudgeTest, WorkersOfOneMachineShareItsMemory) {
  machine("b")->set_machine(machine("a")->machine());
  EXPECT_THAT(Found(), ElementsAre("MEMORY_OVERCOMMITTED a"));
  EXPECT_THAT(found_.front().what, HasSubstr("a, b"));
  for (const char* name : {"a", "b"}) machine(name)->mutable_memory()->set_promised_bytes(6 * kGiB);
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(JudgeTest, SwapOfAProcess) {
  machine("b")->mutable_memory()->set_swap_used_bytes(kGiB);  // Of others.
  EXPECT_THAT(Found(), IsEmpty());
  machine("b")->mutable_memory()->set_swapped_bytes(kGiB / 2);
  EXPECT_THAT(Found(), ElementsAre("SWAP_IN_USE b"));
  EXPECT_THAT(remedy(), HasSubstr("swapoff"));
}

TEST_F(JudgeTest, InstructionSets) {
  machine("b")->mutable_processor()->set_isa("scalar");
  EXPECT_THAT(Found(), ElementsAre("ISA_SLOWER b"));
  EXPECT_THAT(remedy(), HasSubstr("STRATA_CPU_ISA"));
  machine("b")->mutable_processor()->set_built_isa("scalar");
  EXPECT_THAT(Found(), ElementsAre("ISA_NOT_BUILT b"));
  EXPECT_THAT(remedy(), HasSubstr("STRATA_KERNELS=all"));
}

TEST_F(JudgeTest, AGpuThatNobodyUses) {
  machine("b")->mutable_processor()->add_gpus("cuda");
  EXPECT_THAT(Found(), ElementsAre("GPU_UNUSED b"));
  EXPECT_THAT(remedy(), HasSubstr("STRATA_CUDA"));
  machine("b")->mutable_processor()->add_backends("cuda");
  EXPECT_THAT(Found(), ElementsAre("GPU_UNUSED b"));
  EXPECT_THAT(remedy(), HasSubstr("--backend cuda"));
  machine("b")->mutable_processor()->set_backend("cuda");
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(JudgeTest, ANodeAllOfWhoseLinksAreSlowIsOneFinding) {
  for (const auto& [from, to] : {std::pair("", "b"), {"a", "b"}, {"b", ""}, {"b", "a"}}) {
    link(from, to)->set_bytes_per_s(1e6);
  }
  EXPECT_THAT(Found(), ElementsAre("LINK_SLOW b"));
  EXPECT_THAT(remedy(), HasSubstr("ethtool"));
}

TEST_F(JudgeTest, ASlowLinkBetweenTwo) {
  link("a", "b")->set_bytes_per_s(1e6);
  EXPECT_THAT(Found(), ElementsAre("LINK_SLOW a"));
  EXPECT_THAT(found_.front().what, HasSubstr("from node a to node b"));
}

TEST_F(JudgeTest, ALinkThatHasFallenBack) {
  link("a", "b")->set_planned_bytes_per_s(1.1e9);
  EXPECT_THAT(Found(), ElementsAre("LINK_SLOWER_THAN_PLANNED a"));
  // Faster than that, what is measured depends on what else runs.
  link("a", "b")->set_bytes_per_s(400e6);
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(JudgeTest, ALossyLinkIsNotToldAsSlowToo) {
  link("a", "b")->set_segments_again(5);
  link("a", "b")->set_bytes_per_s(1e6);
  EXPECT_THAT(Found(), ElementsAre("LINK_LOSSY a"));
  EXPECT_THAT(found_.front().measured, HasSubstr("5 of 100"));
  link("a", "b")->set_segments_again(1);
  link("a", "b")->set_bytes_per_s(110e6);
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(JudgeTest, ALinkThatTakesLong) {
  link("a", "b")->set_round_trip_ms(80);
  EXPECT_THAT(Found(), ElementsAre("LINK_FAR a"));
}

TEST_F(JudgeTest, VersionsDiffer) {
  node("b")->set_version("1.1.0");
  EXPECT_THAT(Found(), ElementsAre("VERSION_SKEW b"));
  EXPECT_THAT(remedy(), HasSubstr("Upgrade"));
  node("b")->set_version("1.2.3");
  facts_.set_client_version("0.9.0");
  EXPECT_THAT(Found(), ElementsAre("VERSION_SKEW"));
}

TEST_F(JudgeTest, AWorkerOfAVersionThatMayNotJoin) {
  v1::RefusedFacts* refused = facts_.add_refused();
  refused->set_node("c");
  refused->mutable_error()->set_reason("VERSION_SKEW");
  refused->mutable_error()->set_message("node 'c' has version 9.0.0");
  EXPECT_THAT(Found(), ElementsAre("VERSION_SKEW c"));
}

TEST_F(JudgeTest, AWorkerThatIsTooOldToBeAsked) {
  machine("b")->mutable_error()->set_reason("UNIMPLEMENTED");
  EXPECT_THAT(Found(), ElementsAre("VERSION_SKEW b"));
}

TEST_F(JudgeTest, Disks) {
  v1::DiskFacts* disk = machine("b")->mutable_disk();
  disk->set_free_bytes(1 << 20);
  EXPECT_THAT(Found(), ElementsAre("DISK_FULL b"));
  EXPECT_THAT(remedy(), HasSubstr("--cache-limit"));
  disk->set_free_bytes(50 * kGiB);
  disk->set_cache_limit_bytes(200 * kGiB);
  EXPECT_THAT(Found(), ElementsAre("CACHE_LIMIT_TOO_LARGE b"));
  disk->set_cache_limit_bytes(0);
  disk->set_writable(false);
  EXPECT_THAT(Found(), ElementsAre("STATE_UNWRITABLE b"));
  disk->set_read_only(true);
  EXPECT_THAT(Found(), ElementsAre("DISK_READ_ONLY b"));
}

TEST_F(JudgeTest, WhatIsInMemoryIsGoneWithTheNextStart) {
  machine("")->mutable_disk()->set_in_memory(true);
  machine("b")->mutable_disk()->set_in_memory(true);  // It is fetched again.
  EXPECT_THAT(Found(), ElementsAre("STATE_IN_MEMORY"));
  machine("")->mutable_disk()->set_in_memory(false);
  machine("b")->mutable_certificate()->set_in_memory(true);
  EXPECT_THAT(Found(), ElementsAre("TLS_IN_MEMORY b"));
}

TEST_F(JudgeTest, WhatTheNextStartFinds) {
  v1::BootFacts* boot = machine("b")->mutable_boot();
  boot->set_unit_enabled(false);
  EXPECT_THAT(Found(), ElementsAre("UNIT_NOT_ENABLED b"));
  EXPECT_THAT(remedy(), HasSubstr("systemctl enable strata-worker.service"));
  boot->set_unit_enabled(true);
  boot->set_waits_for_network(false);
  EXPECT_THAT(Found(), ElementsAre("UNIT_BEFORE_NETWORK b"));
  boot->set_waits_for_network(true);
  boot->set_user_unit(true);
  boot->set_lingers(false);
  EXPECT_THAT(Found(), ElementsAre("NO_LINGER b"));
  EXPECT_THAT(remedy(), HasSubstr("loginctl enable-linger strata"));
  boot->set_systemd(false);
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(JudgeTest, FilesOfFlags) {
  v1::BootFacts* boot = machine("b")->mutable_boot();
  boot->add_changed_flags("memory");
  EXPECT_THAT(Found(), ElementsAre("CONFIG_DIFFERS b"));
  EXPECT_THAT(remedy(), HasSubstr("systemctl restart strata-worker.service"));
  boot->set_config_error("FILE:3: there is no flag 'x'");
  EXPECT_THAT(Found(), ElementsAre("CONFIG_BROKEN b"));
  EXPECT_THAT(found_.front().what, HasSubstr("FILE:3"));
}

TEST_F(JudgeTest, ErrorsComeBeforeWarnings) {
  machine("a")->mutable_processor()->set_isa("scalar");
  node("b")->set_state("lost");
  EXPECT_THAT(Found(), ElementsAre("NODE_LOST b", "ISA_SLOWER a"));
}

TEST(JudgeMachineTest, AnAddressThatIsNotOfThisMachine) {
  v1::MachineFacts facts = Machine("a");
  EXPECT_THAT(JudgeMachine(facts), IsEmpty());
  facts.set_address("203.0.113.7:7071");
  facts.set_address_is_given(true);
  const std::vector<Finding> found = JudgeMachine(facts);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "ADVERTISE_NOT_HERE");
  facts.set_address("gpu-box:7071");  // Where a name leads is not known here.
  EXPECT_THAT(JudgeMachine(facts), IsEmpty());
}

TEST(JudgeMachineTest, ACoordinatorThatDoesNotAnswer) {
  v1::MachineFacts facts = Machine("a");
  *facts.mutable_to_coordinator() = Link("a", "");
  EXPECT_THAT(JudgeMachine(facts), IsEmpty());
  facts.mutable_to_coordinator()->mutable_error()->set_reason("CONNECTION_TIMED_OUT");
  const std::vector<Finding> found = JudgeMachine(facts);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "PORT_SILENT");
  EXPECT_EQ(found[0].node, "");
}

TEST(JudgeMachineTest, AProgramThatDoesNotRun) {
  v1::MachineFacts facts;
  facts.mutable_error()->set_message("strata-worker was ended by signal 4");
  facts.mutable_error()->set_hint("install it again");
  const std::vector<Finding> found = JudgeMachine(facts);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "PROGRAM_FAILS");
}

}  // namespace
}  // namespace strata::doctor
