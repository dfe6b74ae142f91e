// Simulated connections. Frames travel on links, which lose, delay, repeat and garble them when a
// fault says so; control messages travel in order, or not at all. Nothing here knows which frames
// are stale: a copy that comes seconds late is handed to whoever is there.
#ifndef STRATA_TESTS_SIM_NETWORK_H_
#define STRATA_TESTS_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/world.h"

namespace strata::sim {

// A machine: a worker's number, or the coordinator.
using Machine = int;
inline constexpr Machine kCoordinatorMachine = -1;

class Network {
 public:
  // `links`: frames' links, that of results included.
  Network(World* world, uint32_t links) : world_(world), armed_(links), stalled_until_(links) {}

  struct Frame {
    uint32_t link = 0;     // 0: from the coordinator; the last one: results.
    uint64_t channel = 0;  // Those of one link and channel arrive in order: an epoch's connection.
    Machine from = kCoordinatorMachine;
    Machine to = kCoordinatorMachine;
    std::string what;               // Of the story; empty when nobody listens.
    std::function<void()> arrives;  // Called once for every copy.
    std::function<void()> garbled;  // Called instead when bytes were changed on the way.
  };
  void SendFrame(const Frame& frame);
  // Whether what one machine sends another reaches it at this time.
  bool Passes(Machine from, Machine to) const;
  // In order for each pair of machines.
  void SendControl(Machine from, Machine to, std::function<void()> arrives);

  // The next frame on the fault's link meets it.
  void Arm(const Fault& fault);
  void StallLink(uint32_t link, TimePoint until) {
    Raise(&stalled_until_[link % stalled_until_.size()], until);
  }
  // Nothing reaches or leaves the machine until then; what was sent arrives afterwards.
  void Partition(Machine machine, TimePoint until) {
    Mute(machine, until);
    Deafen(machine, until);
  }
  // One of the two directions; and that between two machines alone.
  void Mute(Machine from, TimePoint until) { Raise(&mute_until_[from], until); }
  void Deafen(Machine to, TimePoint until) { Raise(&deaf_until_[to], until); }
  void Cut(Machine from, Machine to, TimePoint until) { Raise(&cut_until_[{from, to}], until); }

 private:
  static void Raise(TimePoint* time, TimePoint to);
  TimePoint Arrival(Machine from, Machine to);
  void SendStruck(const Fault& fault, const Frame& frame, TimePoint arrival, TimePoint* free_at);

  World* const world_;
  std::vector<std::deque<Fault>> armed_;  // By link.
  std::vector<TimePoint> stalled_until_;  // By link.
  // By link and channel: when its newest frame arrives.
  std::map<std::pair<uint32_t, uint64_t>, TimePoint> free_at_;
  std::map<std::pair<Machine, Machine>, TimePoint> control_free_at_;
  std::map<Machine, TimePoint> mute_until_;
  std::map<Machine, TimePoint> deaf_until_;
  std::map<std::pair<Machine, Machine>, TimePoint> cut_until_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_NETWORK_H_
