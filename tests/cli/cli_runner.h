// Runs the command line in this process and keeps what it printed.
#ifndef STRATA_TESTS_CLI_CLI_RUNNER_H_
#define STRATA_TESTS_CLI_CLI_RUNNER_H_

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "common/mutex.h"

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

// What was printed, which another thread may read meanwhile.
class PrintedText : public std::streambuf {
 public:
  std::string text() const {
    MutexLock lock(&mutex_);
    return text_;
  }

 private:
  int_type overflow(int_type c) override {
    if (c != traits_type::eof()) {
      const char one = traits_type::to_char_type(c);
      xsputn(&one, 1);
    }
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    MutexLock lock(&mutex_);
    text_.append(data, static_cast<size_t>(size));
    return size;
  }

  mutable Mutex mutex_;
  std::string text_ STRATA_GUARDED_BY(mutex_);
};

class CliRunner {
 public:
  explicit CliRunner(std::string coordinator) {
    variables_["STRATA_COORDINATOR"] = std::move(coordinator);
  }

  CliResult Run(const std::vector<std::string>& args, const std::string& input = "") {
    std::istringstream in(input);
    PrintedText out_text;
    PrintedText err_text;
    std::ostream out(&out_text);
    std::ostream err(&err_text);
    Watch(&out_text, &err_text);
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
    Watch(nullptr, nullptr);
    result.out = out_text.text();
    result.err = err_text.text();
    return result;
  }

  // What the command that runs has printed so far; "" between two. Any thread.
  std::string OutSoFar() const {
    MutexLock lock(&mutex_);
    return out_ == nullptr ? "" : out_->text();
  }
  std::string ErrSoFar() const {
    MutexLock lock(&mutex_);
    return err_ == nullptr ? "" : err_->text();
  }

  void Set(const std::string& variable, const std::string& value) { variables_[variable] = value; }

  cli::Interrupts interrupts;
  bool terminal = false;

 private:
  void Watch(const PrintedText* out, const PrintedText* err) {
    MutexLock lock(&mutex_);
    out_ = out;
    err_ = err;
  }

  std::map<std::string, std::string> variables_;
  mutable Mutex mutex_;
  const PrintedText* out_ STRATA_GUARDED_BY(mutex_) = nullptr;
  const PrintedText* err_ STRATA_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_CLI_CLI_RUNNER_H_
