// Connections between ranks of simulated workers. Bytes pass at once, unless the network between
// the two machines is cut: what a step takes is the stage's to say (StepTime).
#ifndef STRATA_TESTS_SIM_RANK_WIRES_H_
#define STRATA_TESTS_SIM_RANK_WIRES_H_

#include <memory>

#include "tests/sim/network.h"
#include "tests/sim/rank_fibers.h"
#include "worker/collective/rank_channel.h"

namespace strata::sim {

// Who has ends of connections: a leader's stage, or a follower in one epoch.
struct RankOwner {
  Machine machine = 0;
  bool there = true;    // Else its ends are of no use, and others see that they are closed.
  bool silent = false;  // Its machine stopped: nobody sees anything until it starts again.
};

struct RankWireEnds {
  std::unique_ptr<RankChannel> one;
  std::unique_ptr<RankChannel> other;
};
// `network` and `fibers` outlive both ends.
RankWireEnds ConnectRanks(std::shared_ptr<const RankOwner> one,
                          std::shared_ptr<const RankOwner> other, const Network* network,
                          RankFibers* fibers);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANK_WIRES_H_
