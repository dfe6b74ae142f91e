#include "worker/backend/cpu/threads/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/backend/cpu/threads/thread_pool.h"

namespace strata::cpu {
namespace {

uint32_t Nodes(const std::vector<Core>& cores) {
  std::set<uint32_t> nodes;
  for (const Core& core : cores) {
    nodes.insert(core.node);
  }
  return std::max(1u, static_cast<uint32_t>(nodes.size()));
}

// Every physical core's first hyperthread, then the second ones, ...; node after node within.
std::vector<Core> InOrderOfUse(const std::vector<Core>& cores) {
  std::map<uint32_t, uint32_t> taken;  // Hyperthreads of each physical core.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Core> sorted;
  for (const Core& core : cores) {
    sorted[{taken[core.physical]++, core.node, core.number}] = core;
  }
  std::vector<Core> ordered;
  ordered.reserve(sorted.size());
  for (const auto& [key, core] : sorted) {
    ordered.push_back(core);
  }
  return ordered;
}

// Why "auto" leaves the threads to the scheduler; "" if it does not.
std::string WhyNot(uint32_t threads, uint32_t quota_cores, const Topology& topology) {
  const size_t cores = topology.cores.size();
  if (cores == 0) {
    return "this system does not say where its cores are";
  }
  if (threads != cores) {
    return absl::StrCat(threads, threads == 1 ? " thread" : " threads", " for ", cores, " cores");
  }
  if (quota_cores < cores) {
    return absl::StrCat("a quota of ", quota_cores, " of ", cores, " cores");
  }
  if (cores >= topology.online && Nodes(topology.cores) == 1) {
    return "no cores of its own, and one memory node";
  }
  return "";
}

// "0-3, 8".
std::string RangesOf(std::vector<uint32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    absl::StrAppend(&text, text.empty() ? "" : ", ", numbers[i]);
    if (last > i) {
      absl::StrAppend(&text, "-", numbers[last]);
    }
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<uint32_t> Placement::cores() const {
  std::vector<uint32_t> numbers;
  for (const Core& core : threads) {
    numbers.push_back(core.number);
  }
  return numbers;
}

std::vector<uint32_t> Placement::nodes() const {
  std::vector<uint32_t> numbers;
  for (const Core& core : threads) {
    numbers.push_back(core.node);
  }
  return numbers;
}

uint32_t Placement::memory_nodes() const { return Nodes(threads); }

std::string Placement::Text() const {
  if (threads.empty()) {
    return absl::StrCat("not pinned: ", why);
  }
  std::vector<uint32_t> pinned = cores();
  pinned.erase(pinned.begin());
  return absl::StrCat("pinned to ", pinned.size() == 1 ? "core " : "cores ", RangesOf(pinned),
                      " beside the caller's ", threads[0].number, ", ", memory_nodes(),
                      memory_nodes() == 1 ? " memory node" : " memory nodes");
}

absl::StatusOr<Placement> PlaceThreads(std::string_view pin, uint32_t threads, uint32_t quota_cores,
                                       const Topology& topology) {
  Placement placement;
  if (pin == "on") {
    if (topology.cores.size() < threads) {
      return Error(absl::StatusCode::kInvalidArgument, "PIN",
                   topology.cores.empty() ? "this system does not say where its cores are"
                                          : absl::StrCat(threads, " threads cannot be pinned to ",
                                                         topology.cores.size(), " cores"))
          .Hint("lower --threads, or leave out --pin on");
    }
  } else if (pin == "auto") {
    placement.why = WhyNot(threads, quota_cores, topology);
  } else if (pin == "off") {
    placement.why = "--pin off";
  } else {
    return Error(absl::StatusCode::kInvalidArgument, "PIN",
                 absl::StrCat("--pin ", std::string(pin), " means nothing"))
        .Hint("use --pin auto, on or off");
  }
  if (placement.why.empty() && threads < 2) {
    placement.why = "the one thread is whoever calls";
  }
  if (!placement.why.empty()) {
    return placement;
  }
  placement.threads = InOrderOfUse(topology.cores);
  placement.threads.resize(threads);
  std::stable_sort(placement.threads.begin(), placement.threads.end(),
                   [](const Core& a, const Core& b) { return a.node < b.node; });
  return placement;
}

WeightPlacer::WeightPlacer(std::vector<uint32_t> nodes, PlaceMemoryFn place)
    : nodes_(std::move(nodes)),
      place_(std::move(place)),
      places_(std::set<uint32_t>(nodes_.begin(), nodes_.end()).size() > 1) {}

void WeightPlacer::Place(std::span<uint8_t> panels, size_t panel_bytes, size_t before,
                         size_t all) const {
  if (!places_) {
    return;
  }
  const size_t threads = nodes_.size();
  const size_t count = panels.size() / panel_bytes;
  const auto begin_of = [&](size_t thread) {  // In these panels.
    const size_t panel = ThreadPool::PartBegin(all, thread, threads);
    return std::min(std::max(panel, before) - before, count);
  };
  for (size_t thread = 0; thread < threads;) {
    size_t next = thread + 1;
    while (next < threads && nodes_[next] == nodes_[thread]) {
      ++next;  // One piece, so that no large page is cut without need.
    }
    const size_t begin = begin_of(thread);
    const size_t end = begin_of(next);
    if (begin < end) {
      place_(panels.data() + begin * panel_bytes, (end - begin) * panel_bytes, nodes_[thread]);
    }
    thread = next;
  }
}

}  // namespace strata::cpu
