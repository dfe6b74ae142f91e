#include "cli/deploy/deployer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/status.h"

namespace strata::deploy {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Scripts are answered by the first of `answers` whose key they contain, else with nothing.
class FakeShell : public Shell {
 public:
  struct Call {
    std::string machine, script, text, file;
  };

  absl::StatusOr<std::string> Run(const Machine& machine, const std::string& script,
                                  const ShellInput& input) override {
    calls.push_back({machine.name, script, input.text, input.file});
    for (auto& [key, answer] : answers) {
      if (script.find(key) != script.npos) {
        return answer();
      }
    }
    return std::string();
  }

  // What was run on a machine and contains `part`.
  std::vector<Call> On(const std::string& machine, const std::string& part = "") const {
    std::vector<Call> found;
    for (const Call& call : calls) {
      if (call.machine == machine && call.script.find(part) != part.npos) {
        found.push_back(call);
      }
    }
    return found;
  }

  std::vector<Call> calls;
  std::vector<std::pair<std::string, std::function<absl::StatusOr<std::string>()>>> answers;
};

class DeployerTest : public ::testing::Test {
 protected:
  DeployerTest() {
    inventory_.cluster = "home";
    inventory_.coordinator = "c";
    inventory_.machines = {
        {.name = "c", .ssh = "c", .address = "10.0.0.1", .worker = false, .worker_settings = {}},
        {.name = "w", .ssh = "w", .address = "", .worker = true, .worker_settings = {}}};
    packages_["strata-worker"] = {.path = "/debs/strata-worker.deb",
                                  .version = "0.2.0",
                                  .architecture = "amd64",
                                  .sha256 = "5ha",
                                  .bytes = 1};
  }

  void Answer(const std::string& key, std::function<absl::StatusOr<std::string>()> answer) {
    shell_.answers.emplace_back(key, std::move(answer));
  }
  void AnswerText(const std::string& key, const std::string& text) {
    Answer(key, [text] { return text; });
  }

  static std::string Listed(const std::string& state, int life, const std::string& models = "") {
    return R"({"nodes": [{"name": "w", "state": ")" + state + R"(", "incarnation": )" +
           std::to_string(life) + R"(, "models": [)" + models + "]}]}";
  }

  Step Install() {
    Step step;
    step.kind = StepKind::kInstall;
    step.machine = "w";
    step.packages = {"strata-worker"};
    return step;
  }

  Inventory inventory_;
  Packages packages_;
  FakeShell shell_;
  milliseconds waited_{0};
  std::vector<std::string> said_;
  Deployer deployer_{inventory_,
                     packages_,
                     &shell_,
                     [this](milliseconds time) { waited_ += time; },
                     [this](const std::string& machine, const std::string& line) {
                       said_.push_back(machine + " " + line);
                     },
                     {.join_timeout = milliseconds(5000), .drain_timeout = milliseconds(3000)}};
};

TEST_F(DeployerTest, APackageIsSentCheckedInstalledAndNoted) {
  ASSERT_TRUE(deployer_.Apply(Install()).ok());
  const auto calls = shell_.On("w");
  ASSERT_EQ(calls.size(), 2);
  EXPECT_EQ(calls[0].file, "/debs/strata-worker.deb");
  EXPECT_THAT(calls[0].script, HasSubstr("5ha"));
  EXPECT_THAT(calls[1].script, HasSubstr("apt-get install"));
  EXPECT_THAT(calls[1].script,
              HasSubstr("echo 5ha > /var/lib/strata/deployed/strata-worker.sha256"));
}

TEST_F(DeployerTest, AWorkersTokenComesFromTheCoordinatorAndGoesByStandardInput) {
  AnswerText("node token", R"({"token": "strata-join-1.secret", "uses": 1})");
  ASSERT_TRUE(deployer_.Apply({.kind = StepKind::kJoin, .machine = "w"}).ok());
  ASSERT_EQ(shell_.On("c", "node token").size(), 1);
  EXPECT_THAT(shell_.On("c", "node token")[0].script, HasSubstr("--host 10.0.0.1"));
  ASSERT_EQ(shell_.On("w").size(), 1);
  EXPECT_EQ(shell_.On("w")[0].script, "strata-worker join - --name w");
  EXPECT_EQ(shell_.On("w")[0].text, "strata-join-1.secret\n");
}

TEST_F(DeployerTest, ATokenThatIsNoneIsRefused) {
  AnswerText("node token", "hello");
  EXPECT_EQ(ReasonOf(deployer_.Apply({.kind = StepKind::kJoin, .machine = "w"})), "BAD_FACTS");
}

TEST_F(DeployerTest, TheClusterIsMadeForTheAddressThatOthersDial) {
  ASSERT_TRUE(deployer_.Apply({.kind = StepKind::kInitCluster, .machine = "c"}).ok());
  EXPECT_EQ(shell_.On("c")[0].script,
            "strata cluster init --name home --no-worker --hosts 10.0.0.1,localhost,127.0.0.1,::1");
}

TEST_F(DeployerTest, FlagsAreSetInTheFileThatIsThere) {
  AnswerText("cat /etc/strata/worker.toml", "# threads = 0\nname = \"w\"\n");
  ASSERT_TRUE(deployer_
                  .Apply({.kind = StepKind::kSetConfig,
                          .machine = "w",
                          .config = "/etc/strata/worker.toml",
                          .settings = {{"threads", "4"}}})
                  .ok());
  EXPECT_EQ(shell_.On("w").back().text, "threads = \"4\"\nname = \"w\"\n");
}

TEST_F(DeployerTest, WorkersAreAwaitedAndThoseThatDoNotComeAreNamed) {
  int asked = 0;
  Answer("node list", [&] { return Listed(++asked < 3 ? "lost" : "ready", 1); });
  EXPECT_TRUE(deployer_.AwaitAll().ok());
  EXPECT_EQ(waited_, milliseconds(2000));
  shell_.answers.clear();
  AnswerText("node list", R"({"nodes": []})");
  const absl::Status status = deployer_.AwaitAll();
  EXPECT_EQ(ReasonOf(status), "NOT_JOINED");
  EXPECT_THAT(strata::Describe(status), HasSubstr("within 5 s: w"));
}

TEST_F(DeployerTest, AWorkerIsDrainedReplacedAwaitedAndUsedAgain) {
  AnswerText("model show m", R"({"name": "m", "options": {"recovery": "move"}})");
  int asked = 0;
  Answer("node list", [&]() -> std::string {
    ++asked;
    if (asked == 1) return Listed("serving", 1, R"("m layers 0-3")");
    if (asked == 2) return Listed("draining", 1, R"("m layers 0-3")");
    if (asked == 3) return Listed("draining", 1);
    if (asked == 4) return Listed("lost", 1);
    return Listed("draining", 2);
  });
  ASSERT_TRUE(deployer_.Upgrade(Install()).ok());
  std::vector<std::string> order;
  for (const FakeShell::Call& call : shell_.calls) {
    for (const char* word : {"drain", "apt-get", "resume"}) {
      if (call.script.find(word) != call.script.npos) {
        order.emplace_back(word);
      }
    }
  }
  EXPECT_THAT(order, ElementsAre("drain", "apt-get", "resume"));
  EXPECT_EQ(asked, 5);
}

TEST_F(DeployerTest, AModelThatDoesNotMoveIsNotWaitedFor) {
  AnswerText("model show m", R"({"name": "m", "options": {"recovery": "wait"}})");
  int installed = 0;
  Answer("apt-get", [&]() -> std::string { return std::to_string(++installed); });
  Answer("node list", [&] { return Listed("draining", installed, R"("m layers 0-3")"); });
  ASSERT_TRUE(deployer_.Upgrade(Install()).ok());
  EXPECT_EQ(waited_, milliseconds(0));
  EXPECT_THAT(said_, ::testing::Contains(HasSubstr("models that do not move")));
}

TEST_F(DeployerTest, AModelThatDoesNotLeaveIsNotWaitedForWithoutEnd) {
  AnswerText("model show m", R"({"name": "m", "options": {"recovery": "move"}})");
  int installed = 0;
  Answer("apt-get", [&]() -> std::string { return std::to_string(++installed); });
  Answer("node list", [&] { return Listed("draining", installed, R"("m layers 0-3")"); });
  ASSERT_TRUE(deployer_.Upgrade(Install()).ok());
  EXPECT_EQ(waited_, milliseconds(3000));
  EXPECT_THAT(said_, ::testing::Contains(HasSubstr("still has layers")));
}

TEST_F(DeployerTest, AFailedReplacementSaysThatTheNodeIsDrained) {
  AnswerText("node list", Listed("draining", 1));
  Answer("apt-get", []() -> absl::StatusOr<std::string> {
    return Error(absl::StatusCode::kFailedPrecondition, "REMOTE_FAILED", "no space left");
  });
  const absl::Status status = deployer_.Upgrade(Install());
  EXPECT_EQ(ReasonOf(status), "REMOTE_FAILED");
  EXPECT_THAT(strata::Describe(status), HasSubstr("drained until `strata node resume w`"));
  EXPECT_THAT(shell_.On("c", "resume"), IsEmpty());
}

TEST_F(DeployerTest, TheCoordinatorsMachineIsReplacedWithoutADrain) {
  Step step = Install();
  step.machine = "c";
  ASSERT_TRUE(deployer_.Upgrade(step).ok());
  EXPECT_THAT(shell_.On("c", "drain"), IsEmpty());
  EXPECT_EQ(shell_.On("c", "apt-get").size(), 1);
}

TEST_F(DeployerTest, AListThatIsNoneIsRefused) {
  EXPECT_EQ(ReasonOf(ParseNodeList("[]").status()), "BAD_FACTS");
  EXPECT_EQ(ReasonOf(ParseNodeList("").status()), "BAD_FACTS");
  EXPECT_TRUE(ParseNodeList(R"({"nodes": [1, {"name": 2}]})").ok());
}

}  // namespace
}  // namespace strata::deploy
