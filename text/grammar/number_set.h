// Sets of numbers, as the texts that write them. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_NUMBER_SET_H_
#define STRATA_TEXT_GRAMMAR_NUMBER_SET_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/automaton.h"
#include "text/grammar/decimal.h"

namespace strata {

// Which texts of numbers are looked at; each has all of the next one.
enum class Notation {
  kAll,  // All of JSON.
  // Without an exponent, with any zeros at the end of the fraction; or one digit that is not 0, a
  // fraction, and an exponent between -307 and 307, as printers of numbers write them.
  kScientific,
  kShort,  // The same with exponents only behind fractions of zeros: 1e3, 1.0e3.
  kPlain,  // Without exponents.
};

// Of the numbers in the set all texts of its notation are, and of other numbers none. A set is kept
// in the widest notation in which an automaton can tell its numbers from others.
class NumberSet {
 public:
  NumberSet() = default;  // All numbers.

  static NumberSet Integers();
  static absl::StatusOr<NumberSet> AtLeast(const Decimal& bound, bool exclusive,
                                           WorkBudget* budget);
  static absl::StatusOr<NumberSet> AtMost(const Decimal& bound, bool exclusive, WorkBudget* budget);
  static absl::StatusOr<NumberSet> OneOf(const std::vector<Decimal>& values, WorkBudget* budget);
  // Of a divisor above 0. Nothing where the automaton would have more than 1,024 states.
  static absl::StatusOr<std::optional<NumberSet>> MultiplesOf(const Decimal& divisor,
                                                              WorkBudget* budget);

  absl::StatusOr<NumberSet> Intersection(const NumberSet& other, WorkBudget* budget) const;
  absl::StatusOr<NumberSet> Complement(WorkBudget* budget) const;
  bool IsEmpty() const { return texts_ != nullptr && texts_->IsEmpty(); }

  // All texts; null where the set has all numbers in all notations.
  const std::shared_ptr<const Automaton>& texts() const { return texts_; }

 private:
  NumberSet(Notation notation, AutomatonPtr texts)
      : notation_(notation), texts_(std::move(texts)) {}
  // The texts that are in `notation` too.
  absl::StatusOr<AutomatonPtr> In(Notation notation, WorkBudget* budget) const;

  Notation notation_ = Notation::kAll;
  std::shared_ptr<const Automaton> texts_;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_NUMBER_SET_H_
