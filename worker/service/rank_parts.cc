#include "worker/service/rank_parts.h"

#include <openssl/rand.h>

#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/ranks/sockets/beating_leader.h"
#include "worker/ranks/sockets/pause_rank.h"

namespace strata {
namespace {

constexpr milliseconds kDefaultStepTimeout{10'000};
constexpr milliseconds kDialTimeout{5'000};

// A wait within a call is less than the step timeout, after which a worker takes its own step for
// hung.
RankTimes TimesOf(const v1::Load& load, const RankPatience& patience, const Clock* clock) {
  const milliseconds step =
      load.step_timeout_ms() == 0 ? kDefaultStepTimeout : milliseconds(load.step_timeout_ms());
  RankTimes times = {.clock = clock,
                     .timeout = std::min<nanoseconds>(patience.call, step / 2),
                     .silence = patience.silence,
                     .pause = PauseRank};
  for (const v1::RankOfLoad& rank : load.ranks().of()) {
    times.names.push_back(rank.worker().node());
  }
  return times;
}

RankSecret DrawSecret() {
  RankSecret secret;
  STRATA_CHECK(RAND_bytes(secret.data(), static_cast<int>(secret.size())) == 1);
  return secret;
}

}  // namespace

std::unique_ptr<Shard> MakeLeader(const v1::Load& load, std::unique_ptr<RankShard> rank,
                                  const RankSurroundings& around, const Clock* clock) {
  std::vector<RankPeer> peers;
  for (const v1::RankOfLoad& one : load.ranks().of()) {
    peers.push_back({.node = one.worker().node(),
                     .incarnation = one.worker().incarnation(),
                     .address = one.worker().address(),
                     .loaded_epoch = load.epoch()});
  }
  const auto join = [peers = std::move(peers), deployment = load.deployment(), wire = around.wire,
                     ask = around.ask](uint64_t epoch) {
    return JoinFollowers(
        DrawSecret(), epoch, static_cast<uint32_t>(peers.size()), wire,
        [&](const RankToJoin& to) -> absl::StatusOr<RankAddress> {
          const RankPeer& peer = peers[to.rank];
          auto address = ask(peer, deployment, to);
          if (address.ok()) {
            return address;
          }
          v1::ErrorDetail detail = DetailOf(address.status());
          detail.set_node(peer.node);
          return Annotate(StatusOf(detail),
                          "rank " + std::to_string(to.rank) + " on node '" + peer.node + "'");
        },
        kDialTimeout);
  };
  return std::make_unique<BeatingLeader>(std::move(rank), TimesOf(load, around.patience, clock),
                                         join);
}

std::shared_ptr<RankSeat> MakeSeat(const v1::Load& load, std::unique_ptr<RankShard> rank,
                                   const StageSpec& spec, const RankSurroundings& around,
                                   const Clock* clock) {
  const auto log = [deployment = load.deployment(),
                    rank = load.ranks().rank()](const absl::Status& why) {
    LogWarn({{"deployment", deployment}, {"rank", rank}}, "a rank of the stage: " + Describe(why));
  };
  return std::make_shared<RankSeat>(std::move(rank), spec,
                                    RankSeatConfig{.rank = load.ranks().rank(),
                                                   .times = TimesOf(load, around.patience, clock),
                                                   .connect = around.patience.connect,
                                                   .host = around.host,
                                                   .port = around.port,
                                                   .wire = around.wire,
                                                   .log = log});
}

}  // namespace strata
