// What all parts of a simulation share: time, events, randomness, the story, and the verdict.
#ifndef STRATA_TESTS_SIM_WORLD_H_
#define STRATA_TESTS_SIM_WORLD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "tests/sim/counts.h"
#include "tests/sim/random.h"
#include "tests/sim/scenario.h"

namespace strata::sim {

// Events by time, those of one time in the order in which they were added.
class EventQueue {
 public:
  using Event = std::function<void()>;

  TimePoint now() const { return now_; }
  uint64_t ran() const { return ran_; }
  void At(TimePoint when, Event event);
  // Runs the next event; false if there is none until `end`, which then is the time.
  bool RunNext(TimePoint end);

 private:
  struct Entry {
    TimePoint when;
    uint64_t number;
    Event event;
    bool operator<(const Entry& other) const {  // A heap's top is its largest.
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  std::vector<Entry> heap_;
  TimePoint now_{0};
  uint64_t added_ = 0;
  uint64_t ran_ = 0;
};

class World {
 public:
  World(const Scenario* scenario, bool tells)
      : scenario(*scenario), random(Mix64(scenario->seed ^ 0x51D)), tells_(tells) {}

  TimePoint now() const { return events.now(); }
  void After(nanoseconds delay, EventQueue::Event event) {
    events.At(now() + delay, std::move(event));
  }

  // A line of the story; `line` gives its text, and is asked only when somebody listens.
  template <typename Line>
  void Tell(const Line& line) {
    if (tells_) {
      AddLine(line());
    }
  }
  // What must never be. The first one is the run's finding.
  void Fail(const std::string& what);
  bool failed() const { return finding_.has_value(); }
  const std::optional<std::string>& finding() const { return finding_; }
  const std::string& story() const { return story_; }

  void Count(Rule rule) { ++counts.rules[static_cast<size_t>(rule)]; }
  void Count(FaultKind kind) { ++counts.faults[static_cast<size_t>(kind)]; }

  const Scenario& scenario;
  EventQueue events;
  Random random;
  Counts counts;

 private:
  void AddLine(const std::string& line);

  const bool tells_;
  std::string story_;
  std::optional<std::string> finding_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_WORLD_H_
