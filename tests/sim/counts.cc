#include "tests/sim/counts.h"

#include <cstdio>
#include <iterator>

namespace strata::sim {
namespace {

constexpr std::string_view kFaultNames[] = {"drop-frame",
                                            "delay-frame",
                                            "duplicate-frame",
                                            "late-copy",
                                            "reorder-frames",
                                            "corrupt-frame",
                                            "stall-link",
                                            "stall-worker",
                                            "partition",
                                            "break-control",
                                            "crash-worker",
                                            "power-off-worker",
                                            "crash-coordinator",
                                            "power-off-coordinator",
                                            "unload-and-load",
                                            "replan",
                                            "resize",
                                            "flip-bit",
                                            "fail-backend",
                                            "non-finite",
                                            "fork-wrong-source",
                                            "repeat-item",
                                            "stale-item",
                                            "poison-device",
                                            "poison-links",
                                            "poison-process",
                                            "fail-load",
                                            "leave-worker",
                                            "mute-worker",
                                            "deafen-worker",
                                            "cut-one-way",
                                            "slow-worker",
                                            "move-model",
                                            "damage-cache",
                                            "evict-cache",
                                            "fill-disk",
                                            "spoil-blob"};
static_assert(std::size(kFaultNames) == kFaultKinds);

constexpr std::string_view kRuleNames[] = {"step seen before: discarded",
                                           "step missing: link broken",
                                           "old epoch: discarded",
                                           "bad checksum: link broken",
                                           "other incarnation: discarded",
                                           "deployment not loaded: discarded",
                                           "link ended by a fence or fault: discarded",
                                           "position: item refused",
                                           "fingerprint: item or command refused",
                                           "generation: item refused",
                                           "sequence not found: item refused",
                                           "two items of a sequence: one refused",
                                           "slice does not go on: refused",
                                           "not finite: item failed alone",
                                           "backend failed: items computed again",
                                           "backend failed at an item alone",
                                           "resync: sequences released",
                                           "fork: served",
                                           "result discarded by the engine",
                                           "session replayed",
                                           "session rebuilt after a fence",
                                           "fault: fenced",
                                           "a request breaks a stage: failed alone",
                                           "step timeout",
                                           "fence not acknowledged in time",
                                           "pipeline down: sessions failed",
                                           "no page to grow: a session preempted",
                                           "drafts: a token was right",
                                           "drafts: a draft model has answered",
                                           "drafts: a step ahead of a result",
                                           "drafts: a step ahead came to nothing",
                                           "drafts: a token was wrong",
                                           "prefix cache: a session began on another's pages",
                                           "prefix cache: evicted for its pages",
                                           "prompts spread over steps by layers",
                                           "reservation: a session waited",
                                           "free on commit: a session waited",
                                           "resized: sessions went on",
                                           "moved to other nodes: sessions went on",
                                           "moved from a node told to stop",
                                           "moved to faster nodes that came",
                                           "loaded beside what served: switched",
                                           "links opened ahead: used by the fence",
                                           "KV taken over from the stage before",
                                           "KV put together from several stages",
                                           "KV from another stage: refused",
                                           "KV not taken over: computed again",
                                           "loaded beside what served: given up",
                                           "no other nodes: requests waited",
                                           "resize refused: KV in use",
                                           "resize failed: undone",
                                           "load failed: loaded again later",
                                           "ranks of a stage joined",
                                           "ranks joined anew after a loss",
                                           "a rank did not join: fence failed",
                                           "a rank lost: step failed",
                                           "cached: layer neither fetched nor packed",
                                           "cache damaged: fetched or packed again",
                                           "weights taken from another worker",
                                           "a worker gives no blob: another source",
                                           "blob damaged on its way: thrown away",
                                           "disk full: load failed",
                                           "disk full: room made",
                                           "disk full: packed weights not kept",
                                           "layer kept for the loss of its node",
                                           "node lost: no weights moved",
                                           "lease lapsed at a worker",
                                           "heartbeats missed: node lost",
                                           "node lost: model waits",
                                           "node lost: requests waited for it",
                                           "node told to stop: model waits",
                                           "name taken: registration refused",
                                           "request answered whole",
                                           "request ended at a stop id",
                                           "answer kept to its masks",
                                           "request cancelled",
                                           "request replaced",
                                           "refused: request in flight",
                                           "deadline passed",
                                           "refused: can never fit",
                                           "refused: longer than the context",
                                           "refused: queue full",
                                           "request sent again by its client"};
static_assert(std::size(kRuleNames) == kRules);

void AddLine(std::string_view name, uint64_t count, std::string* table) {
  char line[96];
  std::snprintf(line, sizeof line, "  %-40.*s %12llu\n", static_cast<int>(name.size()), name.data(),
                static_cast<unsigned long long>(count));
  *table += line;
}

}  // namespace

std::string_view NameOf(FaultKind kind) { return kFaultNames[static_cast<size_t>(kind)]; }
std::string_view NameOf(Rule rule) { return kRuleNames[static_cast<size_t>(rule)]; }

void Counts::Add(const Counts& other) {
  for (size_t i = 0; i < kFaultKinds; ++i) {
    faults[i] += other.faults[i];
  }
  for (size_t i = 0; i < kRules; ++i) {
    rules[i] += other.rules[i];
  }
}

std::string Counts::Table() const {
  std::string table = "faults\n";
  for (size_t i = 0; i < kFaultKinds; ++i) {
    AddLine(kFaultNames[i], faults[i], &table);
  }
  table += "rules\n";
  for (size_t i = 0; i < kRules; ++i) {
    AddLine(kRuleNames[i], rules[i], &table);
  }
  return table;
}

std::string Counts::Missing() const {
  std::string missing;
  auto add = [&missing](std::string_view name) {
    missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  for (size_t i = 0; i < kFaultKinds; ++i) {
    if (faults[i] == 0) {
      add(kFaultNames[i]);
    }
  }
  for (size_t i = 0; i < kRules; ++i) {
    if (rules[i] == 0) {
      add(kRuleNames[i]);
    }
  }
  return missing;
}

}  // namespace strata::sim
