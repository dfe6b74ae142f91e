// Connections between the ranks of several workers, each of which begins with a hello.
#ifndef STRATA_WORKER_RANKS_SOCKETS_RANK_SOCKETS_H_
#define STRATA_WORKER_RANKS_SOCKETS_RANK_SOCKETS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "worker/collective/rank_channel.h"
#include "worker/ranks/expected_ranks.h"
#include "worker/ranks/rank_hello.h"
#include "worker/ranks/sockets/rank_wire.h"

namespace strata {

// How long a connection may take to say its hello, and how many may be at it.
inline constexpr milliseconds kRankHelloTimeout(5'000);
inline constexpr size_t kMostRankHellos = 32;

// A socket that ranks connect to. One thread at a time.
class RankListener {
 public:
  // On this host, empty for all of its addresses; port 0: any that is free. Another port is waited
  // for, for as long as somebody listens there and `patience` lasts. UNAVAILABLE (RANK_LISTEN)
  // where it cannot be had.
  static absl::StatusOr<std::unique_ptr<RankListener>> Open(const std::string& host, uint16_t port,
                                                            milliseconds patience);
  ~RankListener();
  RankListener(const RankListener&) = delete;
  RankListener& operator=(const RankListener&) = delete;

  uint16_t port() const { return port_; }

  // Takes connections until all that are expected are there. One that says no hello in time,
  // another than is expected, or none by TLS where that is asked for, is closed, and `refused` told
  // why. DEADLINE_EXCEEDED
  // (COLLECTIVE_TIMEOUT) names who is missing; CANCELLED once `stopped` says so.
  absl::Status Await(ExpectedRanks* expected, RankWire wire, const Clock& clock, TimePoint deadline,
                     const std::function<bool()>& stopped,
                     const std::function<void(const absl::Status&)>& refused);

 private:
  RankListener(int socket, uint16_t port) : socket_(socket), port_(port) {}

  const int socket_;
  const uint16_t port_;
};

// Connects and says `hello`, behind a handshake where it goes by TLS. UNAVAILABLE
// (RANK_UNREACHABLE) names the address, and whether it could not be found, refused, did not answer
// in time, or has another secret; CANCELLED once `stopped`, where there is one, says so. Finding a
// name may take as long as the system lets it.
absl::StatusOr<std::unique_ptr<RankChannel>> DialRank(const std::string& host, uint16_t port,
                                                      const RankHello& hello, RankWire wire,
                                                      milliseconds timeout,
                                                      const std::function<bool()>& stopped = {});

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SOCKETS_RANK_SOCKETS_H_
