#include "cli/deploy/machine_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/platform/run_program.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

TEST(MachineFactsTest, WhatTheScriptSaysOfAMachineIsRead) {
  const auto facts = ParseFacts(
      "system debian 12\narchitecture amd64\nroot yes\nsystemd yes\n"
      "package strata-worker 0.1.0 abc\npackage strata-cli 0.1.0 \n"
      "unit strata-worker active enabled\nunit strata-coordinator inactive \n"
      "worker-config bmFtZSA9ICJhIgo=\nauthority  \nworker-ca 0f  -\n"
      "nodes eyJub2RlcyI6IFt7Im5hbWUiOiAidyIsICJzdGF0ZSI6ICJyZWFkeSJ9XX0=\ndone yes\n");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->system, "debian 12");
  EXPECT_EQ(facts->architecture, "amd64");
  EXPECT_TRUE(facts->root);
  EXPECT_TRUE(facts->systemd);
  EXPECT_EQ(facts->packages.at("strata-worker").version, "0.1.0");
  EXPECT_EQ(facts->packages.at("strata-worker").sha256, "abc");
  EXPECT_EQ(facts->packages.at("strata-cli").sha256, "");
  EXPECT_TRUE(facts->units.at("strata-worker").active);
  EXPECT_TRUE(facts->units.at("strata-worker").enabled);
  EXPECT_FALSE(facts->units.at("strata-coordinator").active);
  EXPECT_EQ(facts->worker_config, "name = \"a\"\n");
  EXPECT_EQ(facts->coordinator_config, std::nullopt);
  EXPECT_EQ(facts->authority_sha256, "");
  EXPECT_EQ(facts->worker_ca_sha256, "0f");
  EXPECT_EQ(facts->nodes.at("w").state, "ready");
}

TEST(MachineFactsTest, AnAnswerThatWasCutOffIsRefused) {
  EXPECT_EQ(ReasonOf(ParseFacts("system debian 12\nroot yes\n").status()), "BAD_FACTS");
  EXPECT_EQ(ReasonOf(ParseFacts("").status()), "BAD_FACTS");
}

TEST(MachineFactsTest, AFileThatIsNoBase64IsRefused) {
  EXPECT_EQ(ReasonOf(ParseFacts("worker-config !\ndone yes\n").status()), "BAD_FACTS");
}

TEST(MachineFactsTest, TheScriptRunsInAPosixShellToItsEnd) {
  const auto ran = RunProgram({"sh"}, {.input = FactsScript()});
  ASSERT_TRUE(ran.ok()) << ran.status();
  EXPECT_EQ(ran->exit_status, 0) << ran->error;
  const auto facts = ParseFacts(ran->out);
  ASSERT_TRUE(facts.ok()) << facts.status() << "\n" << ran->out;
  EXPECT_TRUE(facts->units.contains("strata-worker"));
}

}  // namespace
}  // namespace strata::deploy
