// What the command line accepts and refuses, before anything is asked of a coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "tests/cli/cli_runner.h"
#include "tests/sdk/fake_coordinator.h"

namespace strata::cli {
namespace {

using strata::testing::CliResult;
using strata::testing::CliRunner;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;
using Args = std::vector<std::string>;

Args With(Args args, const std::string& more) {
  args.push_back(more);
  return args;
}

// The command and those below it, as --help lists them.
void AddCommands(CliRunner* cli, const Args& command, std::vector<Args>* all) {
  constexpr std::string_view kTitle = "\nSubcommands:\n";
  all->push_back(command);
  const std::string help = cli->Run(With(command, "--help")).out;
  const size_t at = help.find(kTitle);
  if (at == std::string::npos) {
    return;
  }
  std::istringstream lines(help.substr(at + kTitle.size()));
  for (std::string line; std::getline(lines, line) && line.starts_with("  ");) {
    if (line[2] != ' ') {  // Else a description goes on.
      AddCommands(cli, With(command, line.substr(2, line.find(' ', 2) - 2)), all);
    }
  }
}

const std::vector<Args>& AllCommands() {
  static const auto* commands = [] {
    CliRunner cli("127.0.0.1:1");
    auto* all = new std::vector<Args>;
    AddCommands(&cli, {}, all);
    return all;
  }();
  return *commands;
}

std::string Joined(const Args& args) {
  std::string text = "strata";
  for (const std::string& arg : args) text += " " + arg;
  return text;
}

// One line on stderr that says what is wrong and where help is; nothing on stdout.
void ExpectUsageError(const CliResult& result, const Args& args) {
  SCOPED_TRACE(Joined(args));
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("strata: "));
  EXPECT_THAT(result.err, HasSubstr("--help`\n"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST(CliUsage, EveryCommandIsFoundInTheHelp) {
  EXPECT_THAT(
      AllCommands(),
      IsSupersetOf(
          {Args{}, {"status"}, {"key"}, {"key", "create"}, {"session", "cancel"}, {"bench"}}));
}

TEST(CliUsage, HelpAndVersionWorkAtEveryLevel) {
  CliRunner cli("127.0.0.1:1");
  for (const Args& command : AllCommands()) {
    SCOPED_TRACE(Joined(command));
    for (const char* flag : {"--help", "-h"}) {
      const CliResult help = cli.Run(With(command, flag));
      EXPECT_EQ(help.code, kExitDone);
      EXPECT_THAT(help.out, HasSubstr("Usage: " + Joined(command)));
      EXPECT_THAT(help.out, HasSubstr("--json"));
      EXPECT_THAT(help.out, HasSubstr("--coordinator"));
      EXPECT_EQ(help.err, "");
    }
    const CliResult version = cli.Run(With(command, "--version"));
    EXPECT_EQ(version.code, kExitDone);
    EXPECT_THAT(version.out, StartsWith("strata "));
  }
}

TEST(CliUsage, EveryLeafHelpHasAnExample) {
  CliRunner cli("127.0.0.1:1");
  for (const Args& command : AllCommands()) {
    const std::string help = cli.Run(With(command, "--help")).out;
    const bool group = !command.empty() && help.find("\nSubcommands:\n") != std::string::npos;
    if (!group) {
      EXPECT_THAT(help, HasSubstr("Examples:\n  ")) << Joined(command);
    }
  }
}

TEST(CliUsage, EveryLevelRefusesUnknownOptionsAndCommands) {
  CliRunner cli("127.0.0.1:1");
  for (const Args& command : AllCommands()) {
    const Args args = With(command, "--no-such-option");
    const CliResult result = cli.Run(args);
    ExpectUsageError(result, args);
  }
  for (const Args& args : std::vector<Args>{{"bogus"}, {"node", "bogus"}, {"model", "lod"}}) {
    const CliResult result = cli.Run(args);
    ExpectUsageError(result, args);
    EXPECT_THAT(result.err, HasSubstr("unknown command \"" + args.back() + "\""));
  }
}

TEST(CliUsage, WrongUseExitsTwoWithOneLine) {
  CliRunner cli("127.0.0.1:1");
  const std::vector<Args> wrong = {
      {},
      {"node"},
      {"model", "load"},
      {"model", "load", ""},
      {"status", "now"},
      {"generate"},
      {"generate", "m"},
      {"generate", "m", "p", "--token-ids", "1"},
      {"generate", "m", "p", "q"},
      {"generate", "m", "--token-ids", "1,,2"},
      {"generate", "m", "--token-ids", "1,-2"},
      {"generate", "m", "--token-ids", "4294967296"},
      {"generate", "m", "p", "--max-tokens", "0"},
      {"generate", "m", "p", "--max-tokens", "-5"},
      {"generate", "m", "p", "--max-tokens", "1e3"},
      {"generate", "m", "p", "--max-tokens", "0x10"},
      {"generate", "m", "p", "--max-tokens", ""},
      {"generate", "m", "p", "--max-tokens"},
      {"generate", "m", "p", "--max-tokens", "1", "--max-tokens", "2"},
      {"generate", "m", "p", "--temperature", "-0.1"},
      {"generate", "m", "p", "--temperature", "nan"},
      {"generate", "m", "p", "--temperature", "inf"},
      {"generate", "m", "p", "--top-p", "1.01"},
      {"generate", "m", "p", "--min-p", "-1"},
      {"generate", "m", "p", "--typical-p", "0"},
      {"generate", "m", "p", "--repetition-penalty", "0"},
      {"generate", "m", "p", "--frequency-penalty", "2.5"},
      {"generate", "m", "p", "--presence-penalty", "-2.5"},
      {"generate", "m", "p", "--top-k", "-1"},
      {"generate", "m", "p", "--seed", "-1"},
      {"generate", "m", "p", "--seed", "18446744073709551616"},
      {"generate", "m", "p", "--logprobs", "101"},
      {"generate", "m", "p", "--logit-bias", "1"},
      {"generate", "m", "p", "--logit-bias", "1:nan"},
      {"generate", "m", "p", "--logit-bias", "1:2,1:3"},
      {"generate", "m", "p", "--deadline", "5"},
      {"generate", "m", "p", "--deadline", "0"},
      {"generate", "m", "p", "--deadline", "-5s"},
      {"generate", "m", "p", "--stop", ""},
      {"generate", "m", "p", "--request-id", std::string(129, 'a')},
      {"generate", "m", "p", "--request-id", "a\nb"},
      {"chat"},
      {"chat", "m", ""},
      {"chat", "m", "--request-id", "x"},
      {"model", "pull", "justname"},
      {"model", "pull", "a/b/c"},
      {"model", "add", "x", "--upload", "--detach"},
      {"model", "load", "m", "--goal", "fast"},
      {"model", "load", "m", "--context", "-1"},
      {"model", "load", "m", "--sessions", "0"},
      {"model", "load", "m", "--kv-tokens", "8GiB"},
      {"model", "load", "m", "--quantize", "int3"},
      {"model", "load", "m", "--kv-dtype", "f64"},
      {"model", "load", "m", "--nodes", "a,,b"},
      {"model", "load", "m", "--layers", "a:3-1"},
      {"model", "load", "m", "--layers", "a:0-1-2"},
      {"model", "load", "m", "--layers", ":0-1"},
      {"model", "load", "m", "--layers", "a+:0-1"},
      {"model", "load", "m", "--layers", "a=2:0-1"},
      {"model", "load", "m", "--layers", "a=0+b=1:0-1"},
      {"model", "load", "m", "--layers", "a=x+b=1:0-1"},
      {"model", "load", "m", "--ranks", "0"},
      {"model", "load", "m", "--ranks", "9"},
      {"model", "resize", "m"},
      {"model", "resize", "m", "--kv-tokens", "0"},
      {"model", "check"},
      {"model", "check", "m", "--tokens", "0"},
      {"model", "check", "m", "--tokens", "257"},
      {"bench", "m", "--clients", "0"},
      {"bench", "m", "--ramp", "1s", "--rate", "5"},
      {"session", "cancel"},
      {"--coordinator", "nonsense", "status"},
      {"--coordinator", "host:99999", "status"},
      {"--coordinator"},
  };
  for (const Args& args : wrong) {
    ExpectUsageError(cli.Run(args), args);
  }
}

TEST(CliUsage, SeventeenStopStringsAreTooMany) {
  CliRunner cli("127.0.0.1:1");
  Args args{"generate", "m", "p"};
  for (int i = 0; i < 17; ++i) {
    args.insert(args.end(), {"--stop", "s"});
  }
  ExpectUsageError(cli.Run(args), args);
}

TEST(CliUsage, AnAbsentCoordinatorIsOneLine) {
  int port = 0;
  {
    strata::testing::FakeCoordinator gone;
    port = gone.port();
  }
  const std::string address = "127.0.0.1:" + std::to_string(port);
  CliRunner cli(address);
  const std::vector<Args> commands = {
      {"status"},
      {"top"},
      {"node", "list"},
      {"model", "list"},
      {"model", "add", "x"},
      {"model", "load", "m"},
      {"plan", "m"},
      {"generate", "m", "p"},
      {"chat", "m", "hello"},
      {"session", "list"},
      {"bench", "m"},
      {"model", "pull", "a/b"},
  };
  for (Args args : commands) {
    args.emplace_back("--json");
    const CliResult result = cli.Run(args);
    EXPECT_EQ(result.code, kExitFailed) << Joined(args);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("no coordinator answers at " + address));
    EXPECT_THAT(result.err, HasSubstr("start strata-coordinator"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(CliUsage, TheFlagBeatsTheEnvironment) {
  strata::testing::FakeCoordinator coordinator;
  CliRunner cli("127.0.0.1:1");
  EXPECT_EQ(cli.Run({"status"}).code, kExitFailed);
  EXPECT_EQ(cli.Run({"--coordinator", coordinator.address(), "status"}).code, kExitDone);
  EXPECT_EQ(cli.Run({"status", "--coordinator", coordinator.address()}).code, kExitDone);
  EXPECT_EQ(cli.Run({"node", "--coordinator", coordinator.address(), "list"}).code, kExitDone);
}

TEST(CliUsage, HelpOfWhatIsNoCommandIsRefusedAndNamesTheNearest) {
  CliRunner cli("127.0.0.1:1");
  for (const Args& args : {Args{"statsu", "--help"}, Args{"--help", "statsu"},
                           Args{"statsu", "--version"}, Args{"statsu"}, Args{"statsu", "-h"}}) {
    const CliResult result = cli.Run(args);
    ExpectUsageError(result, args);
    EXPECT_THAT(result.err, HasSubstr("unknown command \"statsu\"; did you mean \"status\"?"));
  }
  const CliResult nested = cli.Run({"model", "laod", "--help"});
  ExpectUsageError(nested, {"model", "laod", "--help"});
  EXPECT_THAT(nested.err, HasSubstr("did you mean \"load\"?"));
  EXPECT_THAT(nested.err, HasSubstr("`strata model --help`"));
  // Nothing is near.
  const CliResult far = cli.Run({"unknown", "--help"});
  ExpectUsageError(far, {"unknown", "--help"});
  EXPECT_THAT(far.err, Not(HasSubstr("did you mean")));
  EXPECT_THAT(cli.Run({"status", "--jsn"}).err, HasSubstr("did you mean \"--json\"?"));
  EXPECT_THAT(cli.Run({"a\x1b[31mb"}).err, HasSubstr("\"a\\x1b[31mb\""));
}

TEST(CliUsage, BadNamesAndAddressesAreRefusedBeforeAnybodyIsAsked) {
  CliRunner cli("127.0.0.1:1");  // Nobody listens there.
  for (const Args& args : {Args{"model", "load", "../x"},
                           Args{"model", "show", "a b"},
                           Args{"plan", ".hidden"},
                           Args{"model", "unload", std::string(97, 'm')},
                           Args{"model", "resize", "a/b", "--kv-tokens", "9"},
                           Args{"model", "remove", "a\nb"},
                           Args{"model", "pull", "no-slash"},
                           Args{"model", "pull", "a/b/c"},
                           Args{"model", "pull", "a/b", "--name", "-x"},
                           Args{"model", "add", "/m", "--name", "x y"},
                           Args{"generate", "a b", "p"},
                           Args{"chat", "a b", "p"},
                           Args{"node", "show", "a b"},
                           Args{"node", "remove", "x\x1b"},
                           Args{"node", "drain", std::string(65, 'n')},
                           Args{"node", "resume", "a/b"},
                           Args{"model", "load", "m", "--nodes", "a,b c"},
                           Args{"model", "load", "m", "--layers", "a b:0-1"},
                           Args{"session", "cancel", std::string(129, 'r')},
                           Args{"session", "cancel", "a\nb"}}) {
    const CliResult result = cli.Run(args);
    ExpectUsageError(result, args);
    EXPECT_THAT(result.err, Not(HasSubstr("no coordinator answers")));
  }
  for (const char* address :
       {"127.0.0.1:0", "box:0", ":7070", "a b:7070", "[box]:7070", "-x:7070", "http://box:7070"}) {
    const Args args = {"status", "--coordinator", address};
    ExpectUsageError(cli.Run(args), args);
  }
}

TEST(CliUsage, WordsBehindTwoDashesAreNoOptions) {
  strata::testing::FakeCoordinator coordinator;
  CliRunner cli(coordinator.address());
  const Args generate = {"generate", "recall", "--", "--json"};
  EXPECT_EQ(cli.Run(generate).code, kExitDone) << cli.Run(generate).err;
  // What the commands with names and texts make of them: that they are unknown, no wrong usage.
  for (const Args& args :
       {Args{"node", "show", "--", "-rf"}, Args{"node", "remove", "--", "-rf"},
        Args{"session", "cancel", "--", "-rf"}, Args{"model", "add", "--", "-rf"}}) {
    EXPECT_NE(cli.Run(args).code, kExitUsage) << Joined(args) << cli.Run(args).err;
  }
  for (const Args& command : AllCommands()) {
    const CliResult result = cli.Run(With(With(command, "--"), "--help"));
    EXPECT_THAT(result.err, Not(HasSubstr("unknown option"))) << Joined(command);
  }
}

TEST(CliUsage, KeyAndTlsComeFromTheEnvironment) {
  strata::testing::FakeCoordinator coordinator;
  CliRunner cli(coordinator.address());
  cli.Set("STRATA_API_KEY", "k1");
  ASSERT_EQ(cli.Run({"generate", "recall", "p"}).code, kExitDone);
  EXPECT_EQ(coordinator.last_authorization(), "Bearer k1");
  cli.Set("STRATA_TLS_DIR", "/nonexistent");
  const CliResult result = cli.Run({"status"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/ca.pem"));
}

}  // namespace
}  // namespace strata::cli
