#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>

namespace strata::sim {

void EventQueue::At(TimePoint when, Event event) {
  heap_.push_back({std::max(when, now_), added_++, std::move(event)});
  std::push_heap(heap_.begin(), heap_.end());
}

bool EventQueue::RunNext(TimePoint end) {
  if (heap_.empty() || heap_.front().when > end) {
    now_ = std::max(now_, end);
    return false;
  }
  std::pop_heap(heap_.begin(), heap_.end());
  Entry entry = std::move(heap_.back());
  heap_.pop_back();
  now_ = entry.when;
  ++ran_;
  entry.event();
  return true;
}

void World::Fail(const std::string& what) {
  if (!finding_.has_value()) {
    finding_ = what;
    AddLine("FINDING: " + what);
  }
}

void World::AddLine(const std::string& line) {
  char time[32];
  std::snprintf(time, sizeof time, "%9.3f ms  ", ToMs(now()));
  story_ += time + line + "\n";
}

}  // namespace strata::sim
