// The program itself, as a child: signals, pipes, exit codes, the example program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "common/check.h"
#include "tests/eventually.h"
#include "tests/sdk/fake_coordinator.h"

namespace strata::cli {
namespace {

using strata::testing::FakeCoordinator;
using strata::testing::FakeText;
using strata::testing::Mishap;
using ::testing::HasSubstr;

std::string Binary(const std::string& name) {
  const char* folder = std::getenv("STRATA_BIN");
  EXPECT_NE(folder, nullptr) << "run under ctest, or set STRATA_BIN";
  return (folder == nullptr ? std::string() : std::string(folder)) + "/" + name;
}

class Child {
 public:
  explicit Child(std::vector<std::string> args) {
    int out[2];
    int err[2];
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(err), 0);
    pid_ = fork();
    STRATA_CHECK(pid_ >= 0);  // A signal to -1 would reach every process.
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
      std::vector<char*> argv;
      for (std::string& arg : args) argv.push_back(arg.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }

  void Signal(int number) const { kill(pid_, number); }
  void CloseOut() {
    close(out_);
    out_ = -1;
  }

  // Reads all that it prints (less than a pipe's size), then its exit code; -signal if killed.
  int Wait() {
    if (out_ >= 0) out = Drain(out_);
    err = Drain(err_);
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string out;
  std::string err;

 private:
  static std::string Drain(int fd) {
    std::string text;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(n));
    close(fd);
    return text;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
};

TEST(CliProcess, AnswersAndExitsZero) {
  FakeCoordinator coordinator;
  Child child({Binary("strata"), "--coordinator", coordinator.address(), "generate", "recall", "x",
               "--seed", "4", "--max-tokens", "2"});
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(child.out, FakeText(4, 0) + FakeText(4, 1) + "\n");
  EXPECT_EQ(child.err, "");
}

TEST(CliProcess, CtrlCCancelsOnTheClusterAndEnds) {
  FakeCoordinator coordinator;
  coordinator.Plan({{Mishap::kHang, 2}});
  Child child(
      {Binary("strata"), "--coordinator", coordinator.address(), "generate", "recall", "x"});
  ASSERT_TRUE(Eventually([&] { return !coordinator.generate_requests().empty(); }));
  child.Signal(SIGINT);
  EXPECT_EQ(child.Wait(), 1);
  EXPECT_THAT(child.err, HasSubstr("cancelled"));
  EXPECT_TRUE(Eventually([&] { return coordinator.cancelled_calls() == 1; }));
}

TEST(CliProcess, AKilledClientsRequestEnds) {
  FakeCoordinator coordinator;
  coordinator.Plan({{Mishap::kHang, 2}});
  Child child(
      {Binary("strata"), "--coordinator", coordinator.address(), "generate", "recall", "x"});
  ASSERT_TRUE(Eventually([&] { return !coordinator.generate_requests().empty(); }));
  child.Signal(SIGKILL);
  EXPECT_EQ(child.Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return coordinator.cancelled_calls() == 1; }));
}

TEST(CliProcess, AClosedPipeEndsTheRequest) {
  FakeCoordinator coordinator;
  coordinator.SetPaceMs(5);
  Child child({Binary("strata"), "--coordinator", coordinator.address(), "generate", "recall", "x",
               "--max-tokens", "100000"});
  ASSERT_TRUE(Eventually([&] { return !coordinator.generate_requests().empty(); }));
  child.CloseOut();
  EXPECT_EQ(child.Wait(), 1);
  EXPECT_THAT(child.err, HasSubstr("stdout"));
  EXPECT_TRUE(Eventually([&] { return coordinator.cancelled_calls() == 1; }));
}

TEST(CliProcess, AConversationOnATerminalSurvivesCtrlC) {
  FakeCoordinator coordinator;
  coordinator.Plan({{Mishap::kHang, 2}});
  std::vector<std::string> args{Binary("strata"), "--coordinator", coordinator.address()};
  args.insert(args.end(), {"chat", "recall", "--max-tokens", "4"});
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::string seen;
  // Reads what the terminal shows until it ends with `text`.
  const auto expect = [&](const std::string& text) {
    char c = 0;
    while (seen.size() < text.size() ||
           seen.compare(seen.size() - text.size(), text.size(), text)) {
      pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
      constexpr int kWaitMs = std::chrono::milliseconds(kGiveUpAfter).count();
      if (poll(&ready, 1, kWaitMs) != 1 || read(terminal, &c, 1) != 1) {
        ADD_FAILURE() << "no \"" << text << "\" in: " << seen;
        return;
      }
      seen += c;
    }
    seen.clear();
  };
  const auto type = [&](const std::string& text) {
    EXPECT_EQ(write(terminal, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  expect("> ");
  type("hello\n");
  expect(FakeText(77, 1));
  type("\x03");
  expect("cancelled after 2 tokens\r\n> ");
  type("again\n");
  expect(FakeText(77, 0));
  expect("> ");
  type("/quit\n");
  int status = 0;
  if (HasFailure()) kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  close(terminal);
  ASSERT_EQ(coordinator.generate_requests().size(), 2u);
  EXPECT_EQ(coordinator.generate_requests()[1].chat().messages_size(), 1);
}

TEST(CliProcess, WrongUseExitsTwo) {
  Child child({Binary("strata"), "generate"});
  EXPECT_EQ(child.Wait(), 2);
  EXPECT_EQ(child.out, "");
}

TEST(Example, AskPrintsTheStreamedAnswer) {
  FakeCoordinator coordinator;
  coordinator.Plan({{Mishap::kBreak, 3}});
  Child child({Binary("strata-example-ask"), coordinator.address(), "recall", "Hello?"});
  EXPECT_EQ(child.Wait(), 0) << child.err;
  EXPECT_THAT(child.out, HasSubstr(FakeText(77, 0) + FakeText(77, 1) + FakeText(77, 2)));
  EXPECT_THAT(child.err, HasSubstr("256 tokens, length"));
  const auto requests = coordinator.generate_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].chat().messages(0).content(), "Hello?");
}

}  // namespace
}  // namespace strata::cli
