#include "text/grammar/string_set.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

size_t PartsOfSet(const StringSet& set) {
  size_t parts = 0;
  if (set.values()) {
    for (const std::string& value : *set.values()) {
      parts += WorkBudget::PartsOf(value);
    }
  }
  return parts;
}

}  // namespace

StringSet StringSet::OfLength(size_t min, size_t max) {
  StringSet set;
  set.min_ = min;
  set.max_ = max;
  return set;
}

StringSet StringSet::OneOf(std::vector<std::string> values) {
  StringSet set;
  std::vector<std::string> once;
  once.reserve(values.size());  // So that what `known` looks at stays where it is.
  std::unordered_set<std::string_view> known;
  for (std::string& value : values) {
    if (!known.contains(value)) {
      known.insert(once.emplace_back(std::move(value)));
    }
  }
  set.values_ = std::move(once);
  return set;
}

StringSet StringSet::Matching(RegexPtr pattern) {
  StringSet set;
  set.pattern_ = std::move(pattern);
  return set;
}

absl::StatusOr<bool> StringSet::Contains(std::string_view text, WorkBudget* budget) const {
  if (values_) {
    return std::find(values_->begin(), values_->end(), text) != values_->end();
  }
  if (IsOfLength()) {
    const size_t length = CountCodePoints(text);
    return length >= min_ && length <= max_;
  }
  ASSIGN_OR_RETURN(const AutomatonPtr texts, ToAutomaton(budget));
  return texts->Accepts(text);
}

absl::StatusOr<AutomatonPtr> StringSet::ToAutomaton(WorkBudget* budget) const {
  if (texts_ != nullptr) {
    return texts_;
  }
  if (values_) {
    std::vector<RegexPtr> ways;
    for (const std::string& value : *values_) {
      ways.push_back(RegexText(value));
    }
    return AutomatonOf(RegexAlternate(std::move(ways)), budget);
  }
  if (pattern_ != nullptr) {
    return AutomatonOf(pattern_, budget);
  }
  if (max_ < min_) {
    return AutomatonOf(RegexAlternate({}), budget);
  }
  return AutomatonOf(RegexRepeat(RegexSet(CharSet::All()), min_, max_), budget);
}

absl::StatusOr<StringSet> StringSet::Intersection(const StringSet& other,
                                                  WorkBudget* budget) const {
  if (values_ || other.values_) {
    const StringSet& listed = values_ ? *this : other;
    StringSet filter = values_ ? other : *this;
    if (filter.pattern_ != nullptr) {
      // Once for all values.
      ASSIGN_OR_RETURN(filter.texts_, filter.ToAutomaton(budget));
      filter.pattern_ = nullptr;
    }
    RETURN_IF_ERROR(budget->AddParts(PartsOfSet(listed) + PartsOfSet(filter)));
    std::unordered_set<std::string_view> among;
    if (filter.values_) {
      among.insert(filter.values_->begin(), filter.values_->end());
    }
    std::vector<std::string> both;
    for (const std::string& value : *listed.values_) {
      bool contained = among.contains(value);
      if (!filter.values_) {
        ASSIGN_OR_RETURN(contained, filter.Contains(value, budget));
      }
      if (contained) {
        both.push_back(value);
      }
    }
    return OneOf(std::move(both));
  }
  if (IsOfLength() && other.IsOfLength()) {
    return OfLength(std::max(min_, other.min_), std::min(max_, other.max_));
  }
  if (IsOfLength() && !HasLength()) {
    return other;
  }
  if (other.IsOfLength() && !other.HasLength()) {
    return *this;
  }
  ASSIGN_OR_RETURN(const AutomatonPtr a, ToAutomaton(budget));
  ASSIGN_OR_RETURN(const AutomatonPtr b, other.ToAutomaton(budget));
  StringSet set;
  ASSIGN_OR_RETURN(set.texts_, IntersectionOf(a, b, budget));
  return set;
}

absl::StatusOr<std::vector<StringSet>> StringSet::Complement(WorkBudget* budget) const {
  std::vector<StringSet> result;
  if (IsOfLength()) {
    if (max_ < min_) {
      return std::vector<StringSet>{StringSet()};
    }
    if (min_ > 0) {
      result.push_back(OfLength(0, min_ - 1));
    }
    if (max_ != kNoLimit) {
      result.push_back(OfLength(max_ + 1, kNoLimit));
    }
    return result;
  }
  ASSIGN_OR_RETURN(const AutomatonPtr own, ToAutomaton(budget));
  StringSet set;
  ASSIGN_OR_RETURN(set.texts_, ComplementOf(own, budget));
  if (!set.IsEmpty()) {
    result.push_back(std::move(set));
  }
  return result;
}

bool StringSet::IsEmpty() const {
  if (values_) {
    return values_->empty();
  }
  if (texts_ != nullptr) {
    return texts_->IsEmpty();
  }
  return IsOfLength() && max_ < min_;
}

}  // namespace strata
