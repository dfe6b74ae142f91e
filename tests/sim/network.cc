#include "tests/sim/network.h"

#include <algorithm>
#include <utility>

namespace strata::sim {

void Network::Raise(TimePoint* time, TimePoint to) { *time = std::max(*time, to); }

TimePoint Network::Arrival(Machine from, Machine to) {
  TimePoint at = world_->now() + world_->scenario.latency;
  if (const auto jitter = world_->scenario.jitter.count(); jitter > 0) {
    at += nanoseconds(world_->random.Next() % static_cast<uint64_t>(jitter));
  }
  return std::max({at, mute_until_[from], deaf_until_[to], cut_until_[{from, to}]});
}

bool Network::Passes(Machine from, Machine to) const {
  const auto passed = [this](const auto& until, const auto& key) {
    const auto it = until.find(key);
    return it == until.end() || it->second <= world_->now();
  };
  return passed(mute_until_, from) && passed(deaf_until_, to) &&
         passed(cut_until_, std::pair(from, to));
}

void Network::SendControl(Machine from, Machine to, std::function<void()> arrives) {
  TimePoint& free_at = control_free_at_[{from, to}];
  Raise(&free_at, Arrival(from, to));
  world_->events.At(free_at, std::move(arrives));
}

void Network::Arm(const Fault& fault) { armed_[fault.target % armed_.size()].push_back(fault); }

void Network::SendFrame(const Frame& frame) {
  TimePoint& free_at = free_at_[{frame.link, frame.channel}];
  const TimePoint arrival =
      std::max({free_at, stalled_until_[frame.link], Arrival(frame.from, frame.to)});
  if (!armed_[frame.link].empty()) {
    const Fault fault = armed_[frame.link].front();
    armed_[frame.link].pop_front();
    world_->Count(fault.kind);
    SendStruck(fault, frame, arrival, &free_at);
    return;
  }
  free_at = arrival;
  world_->events.At(arrival, frame.arrives);
}

void Network::SendStruck(const Fault& fault, const Frame& frame, TimePoint arrival,
                         TimePoint* free_at) {
  switch (fault.kind) {
    case FaultKind::kDropFrame:
      world_->Tell([&] { return "FAULT: " + frame.what + " is lost"; });
      return;
    case FaultKind::kDelayFrame:
      world_->Tell([&] { return "FAULT: " + frame.what + " is delayed, and all behind it"; });
      arrival += fault.lasts;
      break;
    case FaultKind::kReorderFrames:
      world_->Tell([&] { return "FAULT: " + frame.what + " may be overtaken"; });
      world_->events.At(arrival + fault.lasts, frame.arrives);
      return;
    case FaultKind::kDuplicateFrame:
      world_->Tell([&] { return "FAULT: " + frame.what + " is sent twice"; });
      world_->events.At(arrival, frame.arrives);
      break;
    case FaultKind::kLateCopy:
      world_->Tell([&] { return "FAULT: a copy of " + frame.what + " will come late"; });
      world_->events.At(arrival + fault.lasts, frame.arrives);
      break;
    case FaultKind::kCorruptFrame:
      world_->Tell([&] { return "FAULT: a bit of " + frame.what + " flips on the way"; });
      *free_at = arrival;
      world_->events.At(arrival, frame.garbled);
      return;
    default:
      break;
  }
  *free_at = arrival;
  world_->events.At(arrival, frame.arrives);
}

}  // namespace strata::sim
