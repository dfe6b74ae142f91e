#include "common/app/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

namespace strata {
namespace {

std::atomic<bool> signalled{false};

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool StopSignalled() {
  if (!signalled) {
    sigset_t pending;
    if (sigpending(&pending) == 0 &&
        (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1)) {
      return true;
    }
  }
  return signalled;
}

bool WaitForStopSignal(std::chrono::nanoseconds timeout) {
  // sigpending and sigwait, which every POSIX system has; macOS lacks sigtimedwait.
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto tick = std::chrono::milliseconds(20);
  while (!StopSignalled()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(tick, deadline - now));
  }
  const sigset_t set = StopSet();
  int number = 0;
  sigwait(&set, &number);
  signalled = true;
  std::thread([set] {
    int second = 0;
    sigwait(&set, &second);
    _exit(128 + second);
  }).detach();
  return true;
}

}  // namespace strata
