// What `strata doctor` finds: facts in, findings out. No clock, no files, no network.
#ifndef STRATA_COMMON_DOCTOR_FINDINGS_H_
#define STRATA_COMMON_DOCTOR_FINDINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/v1/diagnosis.pb.h"

namespace strata::doctor {

enum class Severity {
  kWarning,  // It works, and will hurt: at the next start, or slowly.
  kError,    // Something does not work.
};

struct Finding {
  Severity severity = Severity::kWarning;
  std::string kind;      // A stable word: a row of docs/OPERATIONS.md, "The doctor".
  std::string node;      // Where; "": the coordinator.
  std::string what;      // One sentence, without a final stop.
  std::string measured;  // "" where there is nothing to measure.
  std::string limit;
  std::string remedy;

  bool operator==(const Finding&) const = default;
};

// What is still healthy.
struct Limits {
  double clock_s = 2;           // That two members' clocks may differ by.
  double bytes_per_s = 12.5e6;  // The least of a link: 100 Mbit/s.
  double planned_share = 0.25;  // The least of what placing layers went by,
  double planned_from = 125e6;  // where the link has less than this: 1 Gbit/s.
  double round_trip_ms = 20;    // The most of a link.
  double lost_share = 0.01;     // The most of small messages that had to be sent again,
  uint64_t lost_segments = 2;   // from so many on.
  uint64_t free_disk_bytes = uint64_t{512} << 20;
  uint64_t swapped_bytes = uint64_t{4} << 20;
};

// All of a cluster. Errors first; then in the order of nodes.
std::vector<Finding> Judge(const v1::ClusterFacts& facts, const Limits& limits = {});

// Of one process and its machine alone.
std::vector<Finding> JudgeMachine(const v1::MachineFacts& facts, const Limits& limits = {});

// The kind of finding that a typed error about certificates is; "" for another error.
std::string CertificateKind(const std::string& reason);

}  // namespace strata::doctor

#endif  // STRATA_COMMON_DOCTOR_FINDINGS_H_
