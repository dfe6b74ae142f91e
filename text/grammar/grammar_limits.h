// What reading a constraint may cost.
#ifndef STRATA_TEXT_GRAMMAR_GRAMMAR_LIMITS_H_
#define STRATA_TEXT_GRAMMAR_GRAMMAR_LIMITS_H_

#include <cstddef>

namespace strata {

struct GrammarLimits {
  // Of a schema, a pattern, or all choices together, as text.
  size_t max_source_bytes = 256 << 10;
  size_t max_depth = 64;          // Values within values of a schema.
  size_t max_nodes = 20'000;      // Values of a schema.
  size_t max_pattern_depth = 64;  // Groups within groups of a pattern.
  // States of one automaton, and those that are made in all for one constraint.
  size_t max_states = 10'000;
  size_t max_total_states = 400'000;
  // Smaller steps while automata are made.
  size_t max_steps = 2'000'000;
  // Alternatives that one place of a schema may have, and those that are looked at in all.
  size_t max_alternatives = 512;
  size_t max_total_alternatives = 200'000;
  // Values, items and members (of each rule for members) that are looked at where alternatives
  // meet.
  size_t max_parts = 5'000'000;
  // Rules and expressions of the grammar.
  size_t max_rules = 50'000;
  size_t max_expressions = 500'000;
  // The highest count of characters, items or members that a grammar may name.
  size_t max_count = 10'000;
  // Blanks, tabs and line ends in a row between two tokens of JSON.
  size_t max_whitespace = 32;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_GRAMMAR_LIMITS_H_
