#include "text/grammar/key_set.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

using Names = std::set<std::string>;

Names Joined(const Names& a, const Names& b) {
  Names result = a;
  result.insert(b.begin(), b.end());
  return result;
}

Names Shared(const Names& a, const Names& b) {
  Names result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::inserter(result, result.end()));
  return result;
}

Names Without(const Names& a, const Names& b) {
  Names result;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(result, result.end()));
  return result;
}

}  // namespace

KeySet KeySet::Of(Names names) {
  KeySet set;
  set.names_ = std::move(names);
  return set;
}

KeySet KeySet::AllBut(Names names) {
  KeySet set;
  set.names_ = std::move(names);
  set.inverted_ = true;
  return set;
}

KeySet KeySet::Of(AutomatonPtr texts) {
  KeySet set;
  set.texts_ = std::move(texts);
  return set;
}

bool KeySet::Contains(std::string_view name) const {
  return texts_ != nullptr ? texts_->Accepts(name)
                           : names_.contains(std::string(name)) != inverted_;
}

bool KeySet::IsEmpty() const {
  return texts_ != nullptr ? texts_->IsEmpty() : !inverted_ && names_.empty();
}

absl::StatusOr<KeySet> KeySet::Intersection(const KeySet& other, WorkBudget* budget) const {
  if (texts_ == nullptr && other.texts_ == nullptr) {
    if (inverted_ && other.inverted_) {
      return AllBut(Joined(names_, other.names_));
    }
    if (inverted_) {
      return Of(Without(other.names_, names_));
    }
    return Of(other.inverted_ ? Without(names_, other.names_) : Shared(names_, other.names_));
  }
  if (IsAll()) {
    return other;
  }
  if (other.IsAll()) {
    return *this;
  }
  ASSIGN_OR_RETURN(const AutomatonPtr a, ToAutomaton(budget));
  ASSIGN_OR_RETURN(const AutomatonPtr b, other.ToAutomaton(budget));
  ASSIGN_OR_RETURN(AutomatonPtr both, IntersectionOf(a, b, budget));
  return Of(std::move(both));
}

absl::StatusOr<KeySet> KeySet::Union(const KeySet& other, WorkBudget* budget) const {
  ASSIGN_OR_RETURN(const KeySet a, Complement(budget));
  ASSIGN_OR_RETURN(const KeySet b, other.Complement(budget));
  ASSIGN_OR_RETURN(const KeySet neither, a.Intersection(b, budget));
  return neither.Complement(budget);
}

absl::StatusOr<KeySet> KeySet::Complement(WorkBudget* budget) const {
  if (texts_ == nullptr) {
    KeySet set = *this;
    set.inverted_ = !inverted_;
    return set;
  }
  ASSIGN_OR_RETURN(AutomatonPtr rest, ComplementOf(texts_, budget));
  return Of(std::move(rest));
}

absl::StatusOr<AutomatonPtr> KeySet::ToAutomaton(WorkBudget* budget) const {
  if (texts_ != nullptr) {
    return texts_;
  }
  std::vector<RegexPtr> ways;
  for (const std::string& name : names_) {
    ways.push_back(RegexText(name));
  }
  ASSIGN_OR_RETURN(AutomatonPtr listed, AutomatonOf(RegexAlternate(std::move(ways)), budget));
  if (!inverted_) {
    return listed;
  }
  return ComplementOf(listed, budget);
}

}  // namespace strata
