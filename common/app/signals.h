// SIGINT and SIGTERM as a question that a main thread can wait on.
#ifndef STRATA_COMMON_APP_SIGNALS_H_
#define STRATA_COMMON_APP_SIGNALS_H_

#include <chrono>

namespace strata {

// Blocks SIGINT and SIGTERM in this thread and those it starts, and ignores SIGPIPE. Call once,
// first thing in main.
void BlockStopSignals();

// Waits for one of them; false if `timeout` passed first. A second signal after the first was
// taken ends the process at once (exit status 130 or 143).
bool WaitForStopSignal(std::chrono::nanoseconds timeout);

// Takes no part in waiting: whether a stop signal is pending or was taken.
bool StopSignalled();

}  // namespace strata

#endif  // STRATA_COMMON_APP_SIGNALS_H_
