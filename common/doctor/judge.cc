// A whole cluster.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "common/doctor/finding_list.h"
#include "common/doctor/findings.h"
#include "common/units.h"

namespace strata::doctor {
namespace {

std::string Seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", std::abs(value));
  return text;
}

void JudgeNodes(const v1::ClusterFacts& facts, FindingList* out) {
  std::map<std::string, const v1::LinkFacts*> from_coordinator;
  for (const v1::LinkFacts& link : facts.links()) {
    if (link.from().empty()) from_coordinator[link.to()] = &link;
  }
  std::map<std::string, const v1::Node*> nodes;
  for (const v1::Node& node : facts.nodes()) {
    nodes[node.name()] = &node;
    if (node.state() == "lost") {
      out->Error("NODE_LOST", node.name(),
                 Named(node.name()) + " at " + node.address() + " is not there",
                 "`systemctl restart strata-worker` there, and `strata doctor --local` where it "
                 "does not start; or forget it: `strata node remove " +
                     node.name() + "`");
    } else if (node.state() == "unfit") {
      out->Error("NODE_UNFIT", node.name(),
                 Named(node.name()) + " cannot compute any more: " + node.unfit(),
                 "`systemctl restart strata-worker` there; `dmesg` has the errors of its GPU");
    }
  }
  for (const v1::MachineFacts& machine : facts.machines()) {
    if (!machine.has_error()) {
      continue;
    }
    const auto link = from_coordinator.find(machine.node());
    const auto node = nodes.find(machine.node());
    if (link != from_coordinator.end() && link->second->has_error()) {
      continue;  // Which says more.
    }
    if (node != nodes.end() && node->second->state() == "lost") {
      continue;
    }
    if (machine.error().reason() == "UNIMPLEMENTED") {
      out->Warn("VERSION_SKEW", machine.node(),
                Named(machine.node()) + " is too old to be looked at",
                "install this version there: docs/OPERATIONS.md, Upgrade",
                {.measured = machine.version(), .limit = facts.machines(0).version()});
    } else {
      out->Error("NODE_SILENT", machine.node(),
                 Named(machine.node()) +
                     " takes connections and does not say how it is: " + machine.error().message(),
                 "its log says what it waits for; `systemctl restart strata-worker` there");
    }
  }
}

// By how much each member's clock differs from that which most of them agree with.
void JudgeClocks(const v1::ClusterFacts& facts, const Limits& limits, FindingList* out) {
  struct Clock {
    std::string node;
    double offset_s = 0;  // Against the coordinator's.
    double error_s = 0;
    bool client = false;
  };
  std::vector<Clock> clocks;
  for (const v1::MachineFacts& machine : facts.machines()) {
    if (machine.node().empty() && !machine.has_error()) {
      clocks.push_back({.node = ""});
    } else if (!machine.has_error() && machine.clock_error_s() > 0) {
      clocks.push_back({machine.node(), machine.clock_offset_s(), machine.clock_error_s()});
    }
  }
  if (facts.clock_error_s() > 0) {
    clocks.push_back({"", -facts.clock_offset_s(), facts.clock_error_s(), true});
  }
  const auto agree = [&limits](const Clock& a, const Clock& b) {
    return std::abs(a.offset_s - b.offset_s) <= limits.clock_s + a.error_s + b.error_s;
  };
  const Clock* most = nullptr;
  int64_t agreeing = 0;
  for (const Clock& clock : clocks) {
    const int64_t with = std::count_if(clocks.begin(), clocks.end(),
                                       [&](const Clock& other) { return agree(clock, other); });
    if (with > agreeing) {
      most = &clock;
      agreeing = with;
    }
  }
  for (const Clock& clock : clocks) {
    if (agree(clock, *most)) {
      continue;
    }
    const double off_s = clock.offset_s - most->offset_s;
    out->Error(
        "CLOCK_OFF", clock.node,
        "the clock of " + (clock.client ? "this machine" : Named(clock.node)) + " is " +
            (off_s > 0 ? "ahead" : "behind") +
            ": certificates lapse early or late, and logs do not fit together",
        "`timedatectl set-ntp true` there, and `timedatectl` says whether it follows a server",
        {.measured = Seconds(off_s) + " +- " + Seconds(clock.error_s + most->error_s),
         .limit = Seconds(limits.clock_s)});
  }
}

void JudgeVersions(const v1::ClusterFacts& facts, FindingList* out) {
  const auto coordinator = std::find_if(facts.machines().begin(), facts.machines().end(),
                                        [](const v1::MachineFacts& m) { return m.node().empty(); });
  if (coordinator == facts.machines().end() || coordinator->version().empty()) {
    return;
  }
  constexpr char kUpgrade[] = "install the same version on all: docs/OPERATIONS.md, Upgrade";
  for (const v1::Node& node : facts.nodes()) {
    if (node.state() != "lost" && node.version() != coordinator->version()) {
      out->Warn("VERSION_SKEW", node.name(),
                Named(node.name()) + " has another version than the coordinator", kUpgrade,
                {.measured = node.version(), .limit = coordinator->version()});
    }
  }
  if (!facts.client_version().empty() && facts.client_version() != coordinator->version()) {
    out->Warn("VERSION_SKEW", "", "this `strata` has another version than the coordinator",
              kUpgrade, {.measured = facts.client_version(), .limit = coordinator->version()});
  }
}

// What the workers of one machine may use together. One that alone may use more is told there.
void JudgeSharedMemory(const v1::ClusterFacts& facts, FindingList* out) {
  struct Shared {
    uint64_t rest = 0;
    uint64_t promised = 0;
    uint64_t available = 0;
    std::vector<std::string> nodes;
    bool told = false;
  };
  std::map<std::string, Shared> machines;
  for (const v1::MachineFacts& machine : facts.machines()) {
    const v1::MemoryFacts& memory = machine.memory();
    if (machine.has_error() || machine.machine().empty() || memory.promised_bytes() == 0) {
      continue;
    }
    Shared& shared = machines[machine.machine()];
    const uint64_t rest =
        memory.promised_bytes() - std::min(memory.promised_bytes(), memory.resident_bytes());
    shared.rest += rest;
    shared.promised += memory.promised_bytes();
    shared.available = std::max(shared.available, memory.available_bytes());
    shared.nodes.push_back(machine.node());
    shared.told = shared.told || rest > memory.available_bytes();
  }
  for (const auto& [id, shared] : machines) {
    if (shared.nodes.size() < 2 || shared.told || shared.available == 0 ||
        shared.rest <= shared.available) {
      continue;
    }
    std::string names;
    for (const std::string& node : shared.nodes) names += (names.empty() ? "" : ", ") + node;
    out->Error("MEMORY_OVERCOMMITTED", shared.nodes.front(),
               "the workers " + names + " are on one machine, and may use " +
                   FormatSize(shared.promised) + " together, which it does not have",
               "give each its share by --memory: docs/INSTALL.md, Several workers on a machine",
               {.measured = FormatSize(shared.available) + " available",
                .limit = FormatSize(shared.rest) + " more that they may take"});
  }
}

}  // namespace

std::vector<Finding> Judge(const v1::ClusterFacts& facts, const Limits& limits) {
  FindingList out;
  JudgeNodes(facts, &out);
  JudgeLinks(facts, limits, &out);
  JudgeClocks(facts, limits, &out);
  JudgeVersions(facts, &out);
  JudgeSharedMemory(facts, &out);
  for (const v1::MachineFacts& machine : facts.machines()) {
    if (!machine.has_error()) {
      JudgeMachineInto(machine, limits, &out);
    }
  }
  std::vector<Finding> all = std::move(*out.all());
  std::stable_sort(all.begin(), all.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return all;
}

}  // namespace strata::doctor
