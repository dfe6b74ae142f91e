// Sets of texts that a string of JSON may hold. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_STRING_SET_H_
#define STRATA_TEXT_GRAMMAR_STRING_SET_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/automaton.h"

namespace strata {

// Texts of `min` to `max` characters that are among `values`, where there are any, and that
// `pattern` and `texts` take, where there are these.
class StringSet {
 public:
  static constexpr size_t kNoLimit = static_cast<size_t>(-1);

  StringSet() = default;  // All texts.
  static StringSet OfLength(size_t min, size_t max);
  static StringSet OneOf(std::vector<std::string> values);
  static StringSet Matching(RegexPtr pattern);

  absl::StatusOr<StringSet> Intersection(const StringSet& other, WorkBudget* budget) const;
  // As sets of which one at least has each other text.
  absl::StatusOr<std::vector<StringSet>> Complement(WorkBudget* budget) const;
  absl::StatusOr<bool> Contains(std::string_view text, WorkBudget* budget) const;
  // Whether it is known to be: false is no promise.
  bool IsEmpty() const;

  // One of these is how the set is written best:
  // its texts, each once;
  const std::optional<std::vector<std::string>>& values() const { return values_; }
  // all texts of a length;
  bool IsOfLength() const { return !values_ && pattern_ == nullptr && texts_ == nullptr; }
  size_t min() const { return min_; }
  size_t max() const { return max_; }
  // those of one pattern (else null);
  const std::shared_ptr<const RegexNode>& pattern() const { return pattern_; }
  // those of an automaton.
  absl::StatusOr<AutomatonPtr> ToAutomaton(WorkBudget* budget) const;

 private:
  bool HasLength() const { return min_ > 0 || max_ != kNoLimit; }

  std::optional<std::vector<std::string>> values_;
  size_t min_ = 0;
  size_t max_ = kNoLimit;
  // Only alone: neither beside a length nor beside `texts_`.
  std::shared_ptr<const RegexNode> pattern_;
  // Holds the length already.
  std::shared_ptr<const Automaton> texts_;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_STRING_SET_H_
