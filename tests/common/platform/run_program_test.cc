#include "common/platform/run_program.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "common/status.h"

namespace strata {
namespace {

ProgramResult Ran(const std::vector<std::string>& words, const ProgramOptions& options = {}) {
  const auto result = RunProgram(words, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(ProgramResult{});
}

TEST(RunProgramTest, WhatItWritesAndItsStatusAreTold) {
  const ProgramResult result = Ran({"sh", "-c", "echo out; echo error >&2; exit 3"});
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.error, "error\n");
}

TEST(RunProgramTest, ArgumentsAreNoShells) { EXPECT_EQ(Ran({"echo", "a  $b;"}).out, "a  $b;\n"); }

TEST(RunProgramTest, ItReadsATextOfAnyLengthWhileItWrites) {
  const std::string text(3'000'000, 'x');
  EXPECT_EQ(Ran({"cat"}, {.input = text, .max_output_bytes = text.size()}).out, text);
}

TEST(RunProgramTest, AProgramThatReadsNothingEnds) {
  EXPECT_EQ(Ran({"true"}, {.input = std::string(3'000'000, 'x')}).exit_status, 0);
}

TEST(RunProgramTest, WithoutInputItReadsTheEnd) { EXPECT_EQ(Ran({"cat"}).out, ""); }

TEST(RunProgramTest, ItReadsAFile) {
  const std::string path = testing::TempDir() + "run_program_input";
  std::ofstream(path) << "of a file";
  EXPECT_EQ(Ran({"cat"}, {.input_file = path}).out, "of a file");
  EXPECT_EQ(ReasonOf(RunProgram({"cat"}, {.input_file = path + ".none"}).status()),
            "PROGRAM_FAILED");
}

TEST(RunProgramTest, VariablesAreSetBesideItsOwn) {
  EXPECT_EQ(Ran({"sh", "-c", "echo $STRATA_A $HOME ${PATH:+path}"},
                {.variables = {{"STRATA_A", "a b"}, {"HOME", "/nowhere"}}})
                .out,
            "a b /nowhere path\n");
}

TEST(RunProgramTest, OfALongOutputTheBeginningIsKept) {
  const ProgramResult result =
      Ran({"sh", "-c", "head -c 1000000 /dev/zero; exit 1"}, {.max_output_bytes = 10});
  EXPECT_EQ(result.out.size(), 10);
  EXPECT_EQ(result.exit_status, 1);
}

TEST(RunProgramTest, ASignalIsTold) { EXPECT_EQ(Ran({"sh", "-c", "kill -9 $$"}).exit_status, 137); }

TEST(RunProgramTest, WhatTakesTooLongIsKilled) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result = RunProgram({"sleep", "600"}, {.timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(ReasonOf(result.status()), "PROGRAM_TIMED_OUT");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(300));
}

TEST(RunProgramTest, AChildThatLivesOnIsNotWaitedFor) {
  EXPECT_EQ(Ran({"sh", "-c", "sleep 20 & echo done"}).out, "done\n");
}

TEST(RunProgramTest, AProgramThatIsNotThereIsNamed) {
  const absl::Status status = RunProgram({"strata-no-such-program"}).status();
  EXPECT_EQ(ReasonOf(status), "PROGRAM_MISSING");
  EXPECT_NE(Describe(status).find("strata-no-such-program"), std::string::npos);
}

TEST(RunProgramTest, SignalsThatThisProcessBlocksEndIt) {
  sigset_t stop;
  sigset_t before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &stop, &before), 0);
  const ProgramResult result = Ran({"sh", "-c", "kill -TERM $$; echo goes on"});
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
  EXPECT_EQ(result.exit_status, 128 + SIGTERM);
  EXPECT_EQ(result.out, "");
}

TEST(RunningProgramTest, ItRunsUntilItIsNotWanted) {
  const std::string path = testing::TempDir() + "running_program";
  std::filesystem::remove(path);
  {
    auto running = RunningProgram::Start(
        {"sh", "-c",
         "trap 'echo ended >" + path + "; exit' TERM; echo runs; while :; do sleep 0.01; done"});
    ASSERT_TRUE(running.ok()) << running.status();
    while ((*running)->result().out.empty()) {
      ASSERT_FALSE((*running)->HasEnded());
    }
  }
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(RunningProgramTest, ItsEndAndWhatItSaidAreKnown) {
  auto running = RunningProgram::Start({"sh", "-c", "echo why >&2; exit 7"});
  ASSERT_TRUE(running.ok()) << running.status();
  while (!(*running)->HasEnded()) {
  }
  EXPECT_EQ((*running)->result().exit_status, 7);
  EXPECT_EQ((*running)->result().error, "why\n");
  EXPECT_TRUE((*running)->HasEnded());
}

TEST(RunningProgramTest, WhatDoesNotWantToEndIsKilled) {
  auto running = RunningProgram::Start({"sh", "-c", "trap '' TERM; echo is deaf; exec sleep 60"});
  ASSERT_TRUE(running.ok()) << running.status();
  while ((*running)->result().out.empty()) {
    ASSERT_FALSE((*running)->HasEnded());
  }
  running->reset();  // Waits for it.
}

TEST(RunningProgramTest, ItEndsWithTheThreadThatStartedIt) {
  std::unique_ptr<RunningProgram> running;
  std::thread([&] {
    auto started = RunningProgram::Start({"sleep", "600"}, {.ends_with_thread = true});
    ASSERT_TRUE(started.ok()) << started.status();
    EXPECT_FALSE((*started)->HasEnded());
    running = *std::move(started);
  }).join();
  ASSERT_NE(running, nullptr);
  while (!running->HasEnded()) {
  }
  EXPECT_EQ(running->result().exit_status, 128 + SIGTERM);
}

TEST(RunningProgramTest, AProgramThatIsNotThereIsNamed) {
  for (const bool ends : {false, true}) {
    EXPECT_EQ(
        ReasonOf(RunningProgram::Start({"no-such-program"}, {.ends_with_thread = ends}).status()),
        "PROGRAM_MISSING");
  }
}

}  // namespace
}  // namespace strata
