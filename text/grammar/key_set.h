// Sets of names of members. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_KEY_SET_H_
#define STRATA_TEXT_GRAMMAR_KEY_SET_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/grammar/automaton.h"

namespace strata {

// Listed names, all others than these, or what an automaton takes. Schemas without patterns need no
// automaton.
class KeySet {
 public:
  KeySet() = default;  // No name.
  static KeySet All() { return AllBut({}); }
  static KeySet Of(std::set<std::string> names);
  static KeySet AllBut(std::set<std::string> names);
  static KeySet Of(AutomatonPtr texts);

  bool Contains(std::string_view name) const;
  bool IsEmpty() const;
  // How many names are listed, among or not among it.
  size_t listed() const { return names_.size(); }
  // Whether it is known to have all names.
  bool IsAll() const { return texts_ == nullptr && inverted_ && names_.empty(); }

  absl::StatusOr<KeySet> Intersection(const KeySet& other, WorkBudget* budget) const;
  absl::StatusOr<KeySet> Union(const KeySet& other, WorkBudget* budget) const;
  absl::StatusOr<KeySet> Complement(WorkBudget* budget) const;
  absl::StatusOr<AutomatonPtr> ToAutomaton(WorkBudget* budget) const;

 private:
  std::set<std::string> names_;
  bool inverted_ = false;
  std::shared_ptr<const Automaton> texts_;  // Where it is there, it alone counts.
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_KEY_SET_H_
