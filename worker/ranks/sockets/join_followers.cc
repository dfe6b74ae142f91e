#include "worker/ranks/sockets/join_followers.h"

#include <memory>
#include <utility>

#include "common/status.h"
#include "worker/ranks/sockets/rank_sockets.h"

namespace strata {

absl::StatusOr<RankChannels> JoinFollowers(const RankSecret& secret, uint64_t epoch, uint32_t ranks,
                                           RankWire wire, const AskToJoinFn& ask,
                                           milliseconds timeout) {
  std::vector<RankAddress> addresses;
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    ASSIGN_OR_RETURN(
        RankAddress address,
        ask({.epoch = epoch, .rank = rank, .ranks = ranks, .secret = secret, .lower = addresses}));
    addresses.push_back(std::move(address));
  }
  RankChannels channels;
  channels.epoch = epoch;
  channels.gathers.resize(ranks);
  channels.calls.resize(ranks);
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    const RankAddress& address = addresses[rank - 1];
    const auto dial = [&](RankConnection use) -> absl::StatusOr<std::unique_ptr<RankChannel>> {
      auto channel = DialRank(address.host, address.port,
                              {.secret = secret, .epoch = epoch, .from = 0, .to = rank, .use = use},
                              wire, timeout);
      if (channel.ok()) {
        return channel;
      }
      v1::ErrorDetail detail = DetailOf(channel.status());
      detail.set_node(address.node);
      return StatusOf(detail);
    };
    ASSIGN_OR_RETURN(channels.gathers[rank], dial(RankConnection::kGathers));
    ASSIGN_OR_RETURN(channels.calls[rank], dial(RankConnection::kCalls));
  }
  return channels;
}

}  // namespace strata
