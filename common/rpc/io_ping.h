// A sign of life of a loop's thread.
#ifndef STRATA_COMMON_RPC_IO_PING_H_
#define STRATA_COMMON_RPC_IO_PING_H_

#include <functional>

#include "common/rpc/io_loop.h"

namespace strata {

// Runs `answer` on the loop's thread, behind what waits for it there. Any thread; before Stop.
void PingIoLoop(IoLoop* loop, std::function<void()> answer);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_IO_PING_H_
