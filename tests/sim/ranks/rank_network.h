// Connections between the ranks of a stage, in simulated time, and what may happen to them.
#ifndef STRATA_TESTS_SIM_RANKS_RANK_NETWORK_H_
#define STRATA_TESTS_SIM_RANKS_RANK_NETWORK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "tests/sim/random.h"
#include "worker/collective/rank_channel.h"

namespace strata::sim {

// Stands still until it is set.
class RankClock : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void Set(TimePoint now) { now_ = now; }

 private:
  TimePoint now_{0};
};

class RankNetwork {
 public:
  // Both outlive it, and it its channels. Connections hold up to a few KiB, and take up to some
  // hundreds of microseconds, as the scenario has it.
  RankNetwork(const RankClock* clock, Random* random);

  struct Ends {
    std::unique_ptr<RankChannel> one;
    std::unique_ptr<RankChannel> other;
  };
  Ends Connect(uint32_t one, uint32_t other);

  // The process of a rank dies: its connections until now end for both sides, maybe without what
  // was on its way.
  void Kill(uint32_t rank);
  // Nothing comes to a rank, and nothing that it sends goes out, for so long.
  void Stall(uint32_t rank, nanoseconds time);
  // Of what comes to a rank next one bit is another.
  void Damage(uint32_t rank);
  // Whether that struck since it was asked before.
  bool TakeDamaged() { return std::exchange(damaged_, false); }
  // Whether any rank stalls.
  bool stalls() const;

  // Counts up with every byte, end and death.
  uint64_t moves() const { return moves_; }
  // When something comes next that has not come; none: nothing is on its way.
  std::optional<TimePoint> NextEvent() const;

 private:
  class Channel;
  struct Segment {
    TimePoint comes;
    std::deque<uint8_t> bytes;
  };
  // One direction.
  struct Pipe {
    uint32_t from;
    uint32_t to;
    size_t capacity;
    nanoseconds latency;
    std::deque<Segment> segments = {};
    size_t on_its_way = 0;
    bool ended = false;      // Nothing more comes.
    bool from_dead = false;  // And who sent is gone, or who takes it.
    bool to_dead = false;
  };

  bool Stalled(uint32_t rank) const;

  const RankClock& clock_;
  Random& random_;
  const size_t capacity_;
  const nanoseconds latency_;
  std::vector<std::shared_ptr<Pipe>> pipes_;
  std::map<uint32_t, TimePoint> stalled_until_;
  std::optional<uint32_t> damages_;
  bool damaged_ = false;
  uint64_t moves_ = 0;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANKS_RANK_NETWORK_H_
