// Runs the command line in this process and keeps what it printed.
#ifndef STRATA_TESTS_CLI_CLI_RUNNER_H_
#define STRATA_TESTS_CLI_CLI_RUNNER_H_

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/cli.h"

namespace strata::testing {

struct CliResult {
  int code = -1;
  std::string out;
  std::string err;
  // The document on stdout; discarded() if there is none.
  nlohmann::json Json() const {
    return nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  }
};

class CliRunner {
 public:
  explicit CliRunner(std::string coordinator) {
    variables_["STRATA_COORDINATOR"] = std::move(coordinator);
  }

  CliResult Run(const std::vector<std::string>& args, const std::string& input = "") {
    std::istringstream in(input);
    std::ostringstream out;
    std::ostringstream err;
    cli::Environment environment;
    environment.in = &in;
    environment.out = &out;
    environment.err = &err;
    environment.in_is_terminal = terminal;
    environment.out_is_terminal = terminal;
    environment.err_is_terminal = terminal;
    environment.interrupts = &interrupts;
    environment.variable = [this](const std::string& name) -> std::optional<std::string> {
      const auto it = variables_.find(name);
      return it == variables_.end() ? std::nullopt : std::optional<std::string>(it->second);
    };
    CliResult result;
    result.code = cli::RunCli(args, environment);
    result.out = out.str();
    result.err = err.str();
    return result;
  }

  void Set(const std::string& variable, const std::string& value) { variables_[variable] = value; }

  cli::Interrupts interrupts;
  bool terminal = false;

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_CLI_CLI_RUNNER_H_
