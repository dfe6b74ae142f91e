// Counts what reading one constraint has cost. One thread.
#ifndef STRATA_TEXT_GRAMMAR_WORK_BUDGET_H_
#define STRATA_TEXT_GRAMMAR_WORK_BUDGET_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "text/grammar/grammar_limits.h"
#include "text/grammar/schema_errors.h"

namespace strata {

class WorkBudget {
 public:
  explicit WorkBudget(const GrammarLimits& limits) : limits_(limits) {}

  const GrammarLimits& limits() const { return limits_; }

  // One more state of an automaton that has `states` of them then.
  absl::Status AddState(size_t states) {
    if (states > limits_.max_states) {
      return SchemaTooComplex("states of one automaton", limits_.max_states);
    }
    if (++states_ > limits_.max_total_states) {
      return SchemaTooComplex("states of automata", limits_.max_total_states);
    }
    return absl::OkStatus();
  }

  absl::Status AddSteps(size_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps) {
      return SchemaTooComplex("steps", limits_.max_steps);
    }
    return absl::OkStatus();
  }

  // A value or a name as parts: long ones take as much as several.
  static size_t PartsOf(std::string_view text) { return 1 + text.size() / 64; }
  // So many values, items and members of alternatives that meet.
  absl::Status AddParts(size_t parts) {
    parts_ += parts;
    if (parts_ > limits_.max_parts) {
      return SchemaTooComplex("parts of alternatives", limits_.max_parts);
    }
    return absl::OkStatus();
  }

  // One more alternative of a place that has `alternatives` of them then.
  absl::Status AddAlternative(size_t alternatives) {
    if (alternatives > limits_.max_alternatives) {
      return SchemaTooComplex("alternatives at one place", limits_.max_alternatives);
    }
    return TryAlternative();
  }

  // Two alternatives are compared.
  absl::Status TryAlternative() {
    if (++alternatives_ > limits_.max_total_alternatives) {
      return SchemaTooComplex("alternatives", limits_.max_total_alternatives);
    }
    return absl::OkStatus();
  }

 private:
  const GrammarLimits limits_;
  size_t states_ = 0;
  size_t steps_ = 0;
  size_t parts_ = 0;
  size_t alternatives_ = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_WORK_BUDGET_H_
