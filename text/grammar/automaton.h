// Deterministic automata over characters: sets of texts that are closed under union, intersection
// and complement. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_AUTOMATON_H_
#define STRATA_TEXT_GRAMMAR_AUTOMATON_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/regex_node.h"
#include "text/grammar/work_budget.h"

namespace strata {

// Begins in state 0; a character without an edge is refused. As the functions below give it, every
// state is reached and leads to an accepting one (but for state 0 of the empty set), and no two are
// alike where it does not take long to see.
struct Automaton {
  struct Edge {
    char32_t low;
    char32_t high;  // Inclusive.
    size_t to;
    friend bool operator==(const Edge& a, const Edge& b) = default;
  };
  struct State {
    bool accepting = false;
    std::vector<Edge> edges;  // Ascending, disjoint.
  };

  // Of well-formed UTF-8.
  bool Accepts(std::string_view text) const;
  // Whether there is no text.
  bool IsEmpty() const { return states.size() == 1 && !states[0].accepting; }

  std::vector<State> states;
};

using AutomatonPtr = std::shared_ptr<const Automaton>;  // Never null.

// All fail with SCHEMA_TOO_COMPLEX alone.
absl::StatusOr<AutomatonPtr> AutomatonOf(const RegexPtr& regex, WorkBudget* budget);
absl::StatusOr<AutomatonPtr> IntersectionOf(const AutomatonPtr& a, const AutomatonPtr& b,
                                            WorkBudget* budget);
absl::StatusOr<AutomatonPtr> UnionOf(const AutomatonPtr& a, const AutomatonPtr& b,
                                     WorkBudget* budget);
// What `a` has and `b` lacks.
absl::StatusOr<AutomatonPtr> DifferenceOf(const AutomatonPtr& a, const AutomatonPtr& b,
                                          WorkBudget* budget);
// Against all texts of scalar values.
absl::StatusOr<AutomatonPtr> ComplementOf(const AutomatonPtr& a, WorkBudget* budget);
// Joins states that are alike, and leaves out those that are useless; of any automaton.
AutomatonPtr Minimal(Automaton untrimmed);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_AUTOMATON_H_
