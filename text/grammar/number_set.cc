#include "text/grammar/number_set.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "text/grammar/number_texts.h"
#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

constexpr uint64_t kMaxDivisorStates = 1'024;
// Numbers that are listed in one automaton, before it is joined with others.
constexpr size_t kListed = 100;
// AutomatonOf() makes no more than so many states for each that is left in the end.
constexpr size_t kNodesPerState = 8;

AutomatonPtr Constant(const RegexPtr& texts) {
  WorkBudget budget{GrammarLimits()};
  absl::StatusOr<AutomatonPtr> automaton = AutomatonOf(texts, &budget);
  STRATA_CHECK(automaton.ok());
  return *std::move(automaton);
}

// Fails where the expressions would have more nodes than an automaton may be made of.
absl::Status CheckNodes(size_t nodes, const WorkBudget& budget) {
  if (nodes / kNodesPerState > budget.limits().max_states) {
    return SchemaTooComplex("states of one automaton", budget.limits().max_states);
  }
  return absl::OkStatus();
}

// Digits of the number when it is written without an exponent, or some more.
size_t PlacesOf(const Decimal& number) {
  return number.digits.size() + static_cast<size_t>(std::abs(number.exponent));
}

// The texts of TextsBeyond(). They need one way for each place of the bound, as long as what stands
// before that place.
absl::StatusOr<AutomatonPtr> Beyond(const Decimal& bound, bool below, bool exclusive,
                                    WorkBudget* budget) {
  const size_t places = PlacesOf(bound);
  RETURN_IF_ERROR(CheckNodes(places * places / 2, *budget));
  return AutomatonOf(TextsBeyond(bound, below, exclusive), budget);
}

// All texts of a notation; the same automaton each time.
AutomatonPtr AllTexts(Notation notation) {
  static const auto* const all = new std::array<AutomatonPtr, 4>{
      Constant(NumberTexts(Notation::kAll)), Constant(NumberTexts(Notation::kScientific)),
      Constant(NumberTexts(Notation::kShort)), Constant(NumberTexts(Notation::kPlain))};
  return (*all)[static_cast<size_t>(notation)];
}

// Numbers without exponent, digit by digit: the remainder of what has been read by `divisor` units
// of 10^-places, until so many digits behind the point have been read; then only zeros follow.
class DivisorAutomaton {
 public:
  DivisorAutomaton(uint64_t divisor, uint64_t places) : divisor_(divisor), places_(places) {}

  AutomatonPtr Build() {
    const size_t start = StateOf({Stage::kStart, 0, 0});
    AddEdge(start, '-', {Stage::kSign, 0, 0});
    AddWhole(start);
    for (size_t i = 1; i < order_.size(); ++i) {
      const Key key = order_[i];
      result_.states[i].accepting = IsMultiple(key);
      switch (key.stage) {
        case Stage::kStart:
          break;
        case Stage::kSign:
          AddWhole(i);
          break;
        case Stage::kZero:
          AddEdge(i, '.', {Stage::kPoint, 0, key.remainder});
          break;
        case Stage::kWhole:
          AddEdge(i, '.', {Stage::kPoint, 0, key.remainder});
          AddDigits(i, key, Stage::kWhole, 0);
          break;
        case Stage::kPoint:
        case Stage::kFraction:
          if (key.place < places_) {
            AddDigits(i, key, Stage::kFraction, key.place + 1);
          } else {
            AddEdge(i, '0', {Stage::kFraction, places_, key.remainder});
          }
          break;
      }
    }
    for (Automaton::State& state : result_.states) {
      std::sort(state.edges.begin(), state.edges.end(),
                [](const auto& a, const auto& b) { return a.low < b.low; });
    }
    return Minimal(std::move(result_));
  }

 private:
  enum class Stage { kStart, kSign, kZero, kWhole, kPoint, kFraction };
  struct Key {
    Stage stage;
    uint64_t place;
    uint64_t remainder;
    friend auto operator<=>(const Key& a, const Key& b) = default;
  };

  // Whether the number ends well here: at least one digit behind a point, and no remainder.
  bool IsMultiple(const Key& key) const {
    if (key.stage != Stage::kZero && key.stage != Stage::kWhole && key.stage != Stage::kFraction) {
      return false;
    }
    uint64_t remainder = key.remainder;
    for (uint64_t place = key.place; place < places_ && remainder != 0; ++place) {
      remainder = remainder * 10 % divisor_;
    }
    return remainder == 0;
  }

  size_t StateOf(const Key& key) {
    const auto [found, added] = numbers_.emplace(key, order_.size());
    if (added) {
      order_.push_back(key);
      result_.states.emplace_back();
    }
    return found->second;
  }

  void AddEdge(size_t from, char digit, const Key& to) {
    const auto c = static_cast<char32_t>(digit);
    const size_t target = StateOf(to);
    result_.states[from].edges.push_back({c, c, target});
  }

  void AddWhole(size_t from) {
    AddEdge(from, '0', {Stage::kZero, 0, 0});
    for (char digit = '1'; digit <= '9'; ++digit) {
      AddEdge(from, digit, {Stage::kWhole, 0, static_cast<uint64_t>(digit - '0') % divisor_});
    }
  }

  void AddDigits(size_t from, const Key& key, Stage stage, uint64_t place) {
    for (char digit = '0'; digit <= '9'; ++digit) {
      const uint64_t value = key.remainder * 10 + static_cast<uint64_t>(digit - '0');
      AddEdge(from, digit, {stage, place, value % divisor_});
    }
  }

  const uint64_t divisor_;
  const uint64_t places_;
  Automaton result_;
  std::map<Key, size_t> numbers_;
  std::vector<Key> order_;
};

}  // namespace

NumberSet NumberSet::Integers() {
  static const AutomatonPtr* const texts = new AutomatonPtr(Constant(IntegerTexts()));
  return NumberSet(Notation::kShort, *texts);
}

absl::StatusOr<NumberSet> NumberSet::AtLeast(const Decimal& bound, bool exclusive,
                                             WorkBudget* budget) {
  if (!bound.negative) {
    ASSIGN_OR_RETURN(AutomatonPtr texts, Beyond(bound, false, exclusive, budget));
    return NumberSet(Notation::kScientific, std::move(texts));
  }
  ASSIGN_OR_RETURN(AutomatonPtr below, Beyond(bound, true, !exclusive, budget));
  return NumberSet(Notation::kScientific, std::move(below)).Complement(budget);
}

absl::StatusOr<NumberSet> NumberSet::AtMost(const Decimal& bound, bool exclusive,
                                            WorkBudget* budget) {
  if (bound.negative || bound.IsZero()) {
    ASSIGN_OR_RETURN(AutomatonPtr texts, Beyond(bound, true, exclusive, budget));
    return NumberSet(Notation::kScientific, std::move(texts));
  }
  ASSIGN_OR_RETURN(AutomatonPtr above, Beyond(bound, false, !exclusive, budget));
  return NumberSet(Notation::kScientific, std::move(above)).Complement(budget);
}

absl::StatusOr<NumberSet> NumberSet::OneOf(const std::vector<Decimal>& values, WorkBudget* budget) {
  ASSIGN_OR_RETURN(AutomatonPtr texts, AutomatonOf(RegexAlternate({}), budget));
  for (size_t begin = 0; begin < values.size(); begin += kListed) {
    std::vector<RegexPtr> ways;
    size_t places = 0;
    for (size_t i = begin; i < std::min(begin + kListed, values.size()); ++i) {
      places += PlacesOf(values[i]);
      RETURN_IF_ERROR(CheckNodes(places, *budget));
      ways.push_back(TextsOf(values[i]));
    }
    ASSIGN_OR_RETURN(const AutomatonPtr some, AutomatonOf(RegexAlternate(std::move(ways)), budget));
    ASSIGN_OR_RETURN(texts, UnionOf(texts, some, budget));
  }
  return NumberSet(Notation::kScientific, std::move(texts));
}

absl::StatusOr<std::optional<NumberSet>> NumberSet::MultiplesOf(const Decimal& divisor,
                                                                WorkBudget* budget) {
  const uint64_t places =
      divisor.exponent < 0 ? static_cast<uint64_t>(-divisor.exponent) : uint64_t{0};
  Decimal units = divisor;
  units.exponent += static_cast<int64_t>(places);
  const std::optional<uint64_t> count = units.ToCount();
  if (!count || *count > kMaxDivisorStates || *count * (places + 2) > kMaxDivisorStates) {
    return std::nullopt;
  }
  if (*count == 1 && places == 0) {
    return Integers();
  }
  return NumberSet(Notation::kPlain, DivisorAutomaton(*count, places).Build());
}

absl::StatusOr<AutomatonPtr> NumberSet::In(Notation notation, WorkBudget* budget) const {
  if (texts_ == nullptr) {
    return AllTexts(notation);
  }
  if (notation == notation_) {
    return texts_;
  }
  return IntersectionOf(texts_, AllTexts(notation), budget);
}

absl::StatusOr<NumberSet> NumberSet::Intersection(const NumberSet& other,
                                                  WorkBudget* budget) const {
  if (texts_ == nullptr) {
    return other;
  }
  if (other.texts_ == nullptr) {
    return *this;
  }
  const Notation notation = std::max(notation_, other.notation_);
  ASSIGN_OR_RETURN(const AutomatonPtr a, In(notation, budget));
  ASSIGN_OR_RETURN(const AutomatonPtr b, other.In(notation, budget));
  ASSIGN_OR_RETURN(AutomatonPtr both, IntersectionOf(a, b, budget));
  return NumberSet(notation, std::move(both));
}

absl::StatusOr<NumberSet> NumberSet::Complement(WorkBudget* budget) const {
  if (texts_ == nullptr) {
    return OneOf({}, budget);
  }
  ASSIGN_OR_RETURN(AutomatonPtr rest, DifferenceOf(AllTexts(notation_), texts_, budget));
  return NumberSet(notation_, std::move(rest));
}

}  // namespace strata
