#include "common/app/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() : flags_("prog", "P_", "about") {
    flags_.Text("name", &name_, "a name");
    flags_.Size("memory", &memory_, "memory", "all");
    flags_.Duration("wait", &wait_, "wait");
    flags_.Duration("early", &early_, "early", {}, "a third");
    flags_.Switch("insecure", &insecure_, "no TLS");
    flags_.Number("max-queued", &queued_, "queue", 1, 1000);
    flags_.Choice("backend", &backend_, {"auto", "cpu"}, "backend");
  }
  std::optional<int> Parse(std::vector<const char*> args) {
    args.insert(args.begin(), "prog");
    return flags_.Parse(static_cast<int>(args.size()), args.data(), [this](const char* key) {
      auto it = env_.find(key);
      return it == env_.end() ? nullptr : it->second.c_str();
    });
  }
  std::string File(const std::string& text) {
    const auto path = std::filesystem::path(::testing::TempDir()) / "flags_test.toml";
    std::ofstream(path) << text;
    return path.string();
  }

  std::string name_ = "host";
  uint64_t memory_ = 0;
  std::chrono::nanoseconds wait_ = std::chrono::seconds(10);
  std::chrono::nanoseconds early_{0};
  bool insecure_ = false;
  uint64_t queued_ = 256;
  std::string backend_ = "auto";
  std::map<std::string, std::string> env_;
  Flags flags_;
};

TEST_F(FlagsTest, DefaultsStayWhenNothingIsGiven) {
  EXPECT_EQ(Parse({}), std::nullopt);
  EXPECT_EQ(name_, "host");
  EXPECT_FALSE(flags_.IsSet("name"));
}

TEST_F(FlagsTest, CommandLineBeatsEnvironmentBeatsFile) {
  const std::string file = File("name = \"file\"\nmax-queued = 7\nmemory = \"1GiB\"\n");
  env_ = {{"P_NAME", "env"}, {"P_MAX_QUEUED", "8"}};
  EXPECT_EQ(Parse({"--config", file.c_str(), "--name", "line"}), std::nullopt);
  EXPECT_EQ(name_, "line");
  EXPECT_EQ(queued_, 8u);
  EXPECT_EQ(memory_, uint64_t{1} << 30);
}

TEST_F(FlagsTest, SwitchesCanBeSetByEveryWay) {
  env_ = {{"P_INSECURE", "true"}};
  EXPECT_EQ(Parse({}), std::nullopt);
  EXPECT_TRUE(insecure_);
}

TEST_F(FlagsTest, WrongUseExitsWith2AndOneLine) {
  for (std::vector<const char*> args : {std::vector<const char*>{"--nmae", "x"},
                                        {"--memory", "lots"},
                                        {"--wait", "5"},
                                        {"--max-queued", "-1"},
                                        {"--max-queued", "0"},
                                        {"--max-queued", "1001"},
                                        {"--backend", "tpu"},
                                        {"stray"}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse(args), 2);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("--help"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  }
}

TEST_F(FlagsTest, UnknownKeysInTheFileAreRefusedByName) {
  const std::string file = File("nmae = \"x\"\n");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--config", file.c_str()}), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("'nmae'"));
}

TEST_F(FlagsTest, WhatIsWrongInTheFileIsRefusedWithItsLine) {
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"# one\nname = \"a\"\nnmae = \"x\"\n", ":3: there is no flag 'nmae'"},
           {"\n[memory]\nx = 1\n", ":2: memory must be a text"},
           {"name = \"a\"\n\nwait = 5\n", ":3: wait"},
           {"name = \"a\"\nmemory = 1GiB\n", ":2: "},
           {"name = \"a\"\nname = \"b\"\n", ":2: "}}) {
    const std::string file = File(text);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse({"--config", file.c_str()}), 2);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(file + said));
  }
}

TEST_F(FlagsTest, HelpNamesEveryFlagItsDefaultAndVariable) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--help"}), 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  for (const char* part : {"--memory", "P_MAX_QUEUED", "default 256", "default 10 s", "default all",
                           "default a third", "auto|cpu"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
}

TEST_F(FlagsTest, AConfigurationThatIsNoFileIsRefused) {
  for (const std::string& path :
       {::testing::TempDir(), ::testing::TempDir() + "/no-such-file", std::string("/dev/zero")}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse({"--config", path.c_str()}), 2);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--config " + path));
  }
  EXPECT_EQ(Parse({"--config", "/dev/null"}), std::nullopt);
}

TEST_F(FlagsTest, HelpOfACommandThatDoesNotExistIsRefused) {
  for (const char* asked : {"--help", "--version"}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse({"unknown", asked}), 2);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("there is no command 'unknown'"));
    EXPECT_EQ(Parse({asked}), 0);
  }
}

TEST_F(FlagsTest, ASizeBelowTheLeastSaysWhatIsMissing) {
  uint64_t room = uint64_t{1} << 30;
  flags_.Size("room", &room, "room", "all", uint64_t{96} << 20);
  const std::pair<const char*, const char*> cases[] = {
      {"0", "no unit"}, {"10", "no unit"}, {"95MiB", "less than the least that works, 96 MiB"}};
  for (const auto& [value, said] : cases) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse({"--room", value}), 2);
    const std::string error = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(error, HasSubstr(said));
    EXPECT_THAT(error, HasSubstr("96 MiB"));
  }
  EXPECT_EQ(Parse({"--room", "96MiB"}), std::nullopt);
  EXPECT_EQ(room, uint64_t{96} << 20);
}

TEST_F(FlagsTest, ItReportsWhatEachFlagIsAndFromWhere) {
  env_["P_WAIT"] = "3s";
  const std::string file = File("memory = \"2GiB\"\n");
  ASSERT_EQ(Parse({"--name", "me", "--insecure", "--config", file.c_str()}), std::nullopt);
  const FlagReport report = flags_.Report();
  EXPECT_EQ(report.config, file);
  std::map<std::string, std::string> said;
  for (const FlagReport::Value& value : report.values) {
    said[value.name] = value.text + ", " + value.from;
  }
  EXPECT_EQ(said["name"], "me, command line");
  EXPECT_EQ(said["insecure"], "true, command line");
  EXPECT_EQ(said["wait"], "3s, environment");
  EXPECT_EQ(said["memory"], "2GiB, file");
  EXPECT_EQ(said["backend"], "auto, default");
}

TEST_F(FlagsTest, WhatItsFileSaysOtherwiseSinceIsFound) {
  const std::string file = File("memory = \"2GiB\"\nmax-queued = 7\n");
  ASSERT_EQ(Parse({"--name", "me", "--config", file.c_str()}), std::nullopt);
  const FlagReport report = flags_.Report();
  EXPECT_THAT(*ChangedFlags(report), ::testing::IsEmpty());
  // One is gone, one is another, one is new; what the command line says counts before the file.
  File("memory = \"3GiB\"\nbackend = \"cpu\"\nname = \"you\"\n");
  EXPECT_THAT(*ChangedFlags(report), ::testing::ElementsAre("backend", "max-queued", "memory"));
  File("memory = ");
  EXPECT_THAT(std::string(ChangedFlags(report).status().message()), HasSubstr("flags_test.toml:1"));
  EXPECT_THAT(*ChangedFlags(FlagReport()), ::testing::IsEmpty());
}

}  // namespace
}  // namespace strata
