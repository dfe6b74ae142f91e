// A connected socket as a channel between two ranks.
#ifndef STRATA_WORKER_COLLECTIVE_SOCKETS_SOCKET_CHANNEL_H_
#define STRATA_WORKER_COLLECTIVE_SOCKETS_SOCKET_CHANNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/collective/rank_channel.h"

namespace strata {

// Takes over `socket`, a connected stream, TCP or of the local machine, also where it fails.
absl::StatusOr<std::unique_ptr<RankChannel>> MakeSocketChannel(int socket);

}  // namespace strata

#endif  // STRATA_WORKER_COLLECTIVE_SOCKETS_SOCKET_CHANNEL_H_
