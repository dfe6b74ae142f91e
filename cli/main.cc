// strata: the command line of a Strata cluster.
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <thread>

#include "cli/cli.h"
#include "common/rpc/transport.h"

int main(int argc, char** argv) {
  strata::SetUpGrpc();
  signal(SIGPIPE, SIG_IGN);
  // Ctrl-C is taken by one thread, so that handlers may lock and call. Blocked before gRPC starts
  // its own threads, which inherit the mask.
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
  static strata::cli::Interrupts interrupts;
  std::thread([interrupt] {
    int signal_number = 0;
    while (sigwait(&interrupt, &signal_number) == 0) {
      if (!interrupts.Fire()) {
        _exit(128 + SIGINT);
      }
    }
  }).detach();

  strata::cli::Environment environment;
  environment.in = &std::cin;
  environment.out = &std::cout;
  environment.err = &std::cerr;
  environment.in_is_terminal = isatty(STDIN_FILENO) != 0;
  environment.out_is_terminal = isatty(STDOUT_FILENO) != 0;
  environment.err_is_terminal = isatty(STDERR_FILENO) != 0;
  environment.terminal_size = []() -> strata::cli::TerminalSize {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
      return {.rows = 24, .columns = 80};
    }
    return {.rows = size.ws_row, .columns = size.ws_col};
  };
  environment.interrupts = &interrupts;
  environment.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return strata::cli::RunCli(std::vector<std::string>(argv + 1, argv + argc), environment);
}
