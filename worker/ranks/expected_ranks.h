// Which connections a follower waits for at the beginning of an epoch. Pure.
#ifndef STRATA_WORKER_RANKS_EXPECTED_RANKS_H_
#define STRATA_WORKER_RANKS_EXPECTED_RANKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "worker/ranks/rank_channels.h"
#include "worker/ranks/rank_hello.h"

namespace strata {

// The leader connects to each follower, once to gather and once for its calls; of two followers the
// higher connects to the lower, to gather. One thread at a time.
class ExpectedRanks {
 public:
  // Of rank `own`, a follower, among `ranks`. What it dials itself is added by Dialled.
  ExpectedRanks(const RankSecret& secret, uint64_t epoch, uint32_t own, uint32_t ranks);

  // Takes a connection that began with `hello`. Refused, so that it is to be closed:
  // UNAUTHENTICATED (kRankHelloRefused) with another secret, whatever else it says;
  // INVALID_ARGUMENT (kRankHelloRefused) of another epoch, to another rank, of one that does not
  // connect here, or the second of its kind.
  absl::Status Take(const RankHello& hello, std::unique_ptr<RankChannel> channel);
  // What to say to a lower follower, and the connection to it.
  RankHello HelloTo(uint32_t rank) const;
  void Dialled(uint32_t rank, std::unique_ptr<RankChannel> channel);

  const RankSecret& secret() const { return secret_; }
  bool complete() const;
  // "rank 0 (calls), rank 2"; of who has not come.
  std::string Missing() const;
  // Once it is complete.
  RankChannels Release() { return std::move(channels_); }

 private:
  std::unique_ptr<RankChannel>* SlotOf(uint32_t rank, RankConnection use);

  const RankSecret secret_;
  const uint32_t own_;
  RankChannels channels_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_EXPECTED_RANKS_H_
