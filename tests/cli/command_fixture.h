// Runs commands against a fake coordinator.
#ifndef STRATA_TESTS_CLI_COMMAND_FIXTURE_H_
#define STRATA_TESTS_CLI_COMMAND_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/cli_runner.h"
#include "tests/sdk/fake_coordinator.h"

namespace strata::cli {

class CommandTest : public ::testing::Test {
 protected:
  testing::CliResult Run(const std::vector<std::string>& args, const std::string& input = "") {
    return cli_.Run(args, input);
  }

  // The one document that the command prints.
  nlohmann::json Document(std::vector<std::string> args, const std::string& input = "") {
    args.emplace_back("--json");
    const testing::CliResult result = Run(args, input);
    EXPECT_EQ(result.code, kExitDone) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
    EXPECT_FALSE(result.Json().is_discarded()) << result.out;
    return result.Json();
  }

  std::string Text(const std::vector<std::string>& args) {
    const testing::CliResult result = Run(args);
    EXPECT_EQ(result.code, kExitDone) << result.err;
    return result.out;
  }

  std::string TempPath(const std::string& name) {
    const std::filesystem::path folder =
        std::filesystem::path(::testing::TempDir()) /
        (std::string("strata-") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder);
    return (folder / name).string();
  }

  testing::FakeCoordinator coordinator_;
  testing::CliRunner cli_{coordinator_.address()};
};

}  // namespace strata::cli

#endif  // STRATA_TESTS_CLI_COMMAND_FIXTURE_H_
