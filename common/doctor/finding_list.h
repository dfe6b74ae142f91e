// Findings as they are made.
#ifndef STRATA_COMMON_DOCTOR_FINDING_LIST_H_
#define STRATA_COMMON_DOCTOR_FINDING_LIST_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/doctor/findings.h"
#include "strata/v1/diagnosis.pb.h"

namespace strata::doctor {

struct Measure {
  std::string measured = "";
  std::string limit = "";
};

class FindingList {
 public:
  void Error(std::string_view kind, std::string_view node, std::string what, std::string remedy,
             Measure measure = {}) {
    Add(Severity::kError, kind, node, std::move(what), std::move(remedy), std::move(measure));
  }
  void Warn(std::string_view kind, std::string_view node, std::string what, std::string remedy,
            Measure measure = {}) {
    Add(Severity::kWarning, kind, node, std::move(what), std::move(remedy), std::move(measure));
  }

  std::vector<Finding>* all() { return &all_; }

 private:
  void Add(Severity severity, std::string_view kind, std::string_view node, std::string what,
           std::string remedy, Measure measure) {
    all_.push_back({severity, std::string(kind), std::string(node), std::move(what),
                    std::move(measure.measured), std::move(measure.limit), std::move(remedy)});
  }

  std::vector<Finding> all_;
};

// "node a", "the coordinator".
std::string Named(std::string_view node);
// How its service is started anew.
std::string Restart(const v1::MachineFacts& facts);

void JudgeMachineInto(const v1::MachineFacts& facts, const Limits& limits, FindingList* out);
// Between members: ports, speed, loss, and who was refused.
void JudgeLinks(const v1::ClusterFacts& facts, const Limits& limits, FindingList* out);

}  // namespace strata::doctor

#endif  // STRATA_COMMON_DOCTOR_FINDING_LIST_H_
