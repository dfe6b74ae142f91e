// Arrays of a schema as rules.
#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "text/grammar/schema_errors.h"
#include "text/grammar/schema_grammar.h"

namespace strata {
namespace {

constexpr size_t kMaxContains = 3;
constexpr size_t kMaxPositions = 2'000;
constexpr size_t kMaxUnique = 8;

// Where only places count.
class PlainArray {
 public:
  PlainArray(const ArrayShape& shape, SchemaGrammar* writer) : shape_(shape), writer_(writer) {}

  // What stands between the brackets, without the blanks behind the first.
  GrammarExpr Content() {
    if (shape_.max == 0) {
      return GrammarExpr::EmptyText();
    }
    const GrammarExpr filled = GrammarExpr::Sequence(
        {writer_->Refer(shape_.At(0)), Tail(1), writer_->texts().Whitespace()});
    return shape_.min > 0 ? filled : GrammarExpr::Optional(filled);
  }

 private:
  // The items from `index` > 0 on, each with its comma.
  GrammarExpr Tail(size_t index) {
    if (index >= shape_.max) {
      return GrammarExpr::EmptyText();
    }
    const GrammarExpr item =
        GrammarExpr::Sequence({writer_->texts().Comma(), writer_->Refer(shape_.At(index))});
    if (index >= shape_.items.size()) {
      const size_t max = shape_.max == kNoCount ? kNoCount : shape_.max - index;
      return GrammarExpr::Repeat(item, shape_.min > index ? shape_.min - index : 0, max);
    }
    // A rule each, as what is within brackets of a grammar must not be deep.
    const size_t rule = writer_->grammar().AddRule("items");
    GrammarExpr rest = GrammarExpr::Sequence({item, Tail(index + 1)});
    writer_->grammar().SetBody(
        rule, shape_.min > index ? std::move(rest) : GrammarExpr::Optional(std::move(rest)));
    return GrammarExpr::Rule(rule);
  }

  const ArrayShape& shape_;
  SchemaGrammar* const writer_;
};

// Where items are counted for which a condition holds: a rule for each place and each count, up to
// where neither changes anything.
class CountedArray {
 public:
  CountedArray(const ArrayShape& shape, SchemaGrammar* writer) : shape_(shape), writer_(writer) {
    last_ = std::max(shape.items.size(), shape.min);
    for (const ArrayShape::Contains& contains : shape.contains) {
      last_ = std::max(last_, contains.first);
    }
    last_ = std::max<size_t>(shape.max == kNoCount ? last_ : shape.max, 1);
  }

  absl::StatusOr<GrammarExpr> Content() {
    if (shape_.contains.size() > kMaxContains) {
      return writer_->reader().keywords().Unsupported(
          *shape_.contains[0].condition.value, "contains", "more than 3 of them meet in one array");
    }
    const Key start = {0, std::vector<size_t>(shape_.contains.size(), 0)};
    const GrammarExpr content = Refer(start);
    for (size_t i = 0; i < order_.size(); ++i) {
      if (order_.size() > kMaxPositions) {
        return writer_->reader().keywords().Unsupported(*shape_.contains[0].condition.value,
                                                        "contains", "too much has to be counted");
      }
      const Key key = order_[i];
      writer_->grammar().SetBody(rules_[key], Body(key));
    }
    return content;
  }

 private:
  using Key = std::pair<size_t, std::vector<size_t>>;  // Items; for each condition, how often.

  GrammarExpr Refer(const Key& key) {
    const auto [found, added] = rules_.emplace(key, 0);
    if (added) {
      found->second = writer_->grammar().AddRule("items");
      order_.push_back(key);
    }
    return GrammarExpr::Rule(found->second);
  }

  GrammarExpr Body(const Key& key) {
    const auto& [index, counts] = key;
    std::vector<GrammarExpr> ways;
    if (MayEnd(key)) {
      ways.push_back(index == 0 ? GrammarExpr::EmptyText() : writer_->texts().Whitespace());
    }
    if (shape_.max == kNoCount || index < shape_.max) {
      for (size_t which = 0; which < size_t{1} << counts.size(); ++which) {
        ways.push_back(Item(key, which));
      }
    }
    return GrammarExpr::Choice(std::move(ways));
  }

  bool MayEnd(const Key& key) const {
    bool may = key.first >= shape_.min;
    for (size_t i = 0; i < shape_.contains.size(); ++i) {
      may = may && key.second[i] >= shape_.contains[i].min;
    }
    return may;
  }

  // The next item, for which the conditions of the bits of `which` count, and all behind it.
  GrammarExpr Item(const Key& key, size_t which) {
    const size_t index = key.first;
    Goal goal = shape_.At(index);
    std::vector<size_t> counts = key.second;
    for (size_t i = 0; i < counts.size(); ++i) {
      const ArrayShape::Contains& contains = shape_.contains[i];
      const bool bounded = contains.max != kNoCount;
      if ((which >> i & 1) == 0) {
        // Without an upper bound, not to count is never wrong.
        if (bounded && index >= contains.first) {
          goal.Add(Goal(contains.condition.Opposite()));
        }
        continue;
      }
      const size_t full = bounded ? contains.max : contains.min;
      if (index < contains.first || counts[i] >= full) {
        return GrammarExpr::Nothing();
      }
      goal.Add(Goal(contains.condition));
      ++counts[i];
    }
    const size_t next = shape_.max == kNoCount ? std::min(index + 1, last_) : index + 1;
    return GrammarExpr::Sequence({index == 0 ? GrammarExpr::EmptyText() : writer_->texts().Comma(),
                                  writer_->Refer(goal), Refer({next, std::move(counts)})});
  }

  const ArrayShape& shape_;
  SchemaGrammar* const writer_;
  size_t last_;  // From here on all places are alike.
  std::map<Key, size_t> rules_;
  std::vector<Key> order_;
};

// Arrays of few values of which none may be there twice: a rule for each set of those that are.
class UniqueArray {
 public:
  UniqueArray(const ArrayShape& shape, SchemaGrammar* writer) : shape_(shape), writer_(writer) {}

  // Whether the array is one of these; its values are known then.
  absl::StatusOr<bool> ReadValues() {
    if (!shape_.items.empty() || !shape_.contains.empty()) {
      return false;
    }
    for (const JsonType type : kJsonTypes) {
      ASSIGN_OR_RETURN(const Shapes shapes, writer_->reader().Read(shape_.rest, type));
      for (const Shape& shape : shapes) {
        if (!AddValues(shape)) {
          return false;
        }
      }
    }
    // The same value may come from several alternatives.
    std::sort(values_.begin(), values_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    values_.erase(std::unique(values_.begin(), values_.end(),
                              [](const auto& a, const auto& b) { return a.first == b.first; }),
                  values_.end());
    return values_.size() <= kMaxUnique;
  }

  GrammarExpr Content() { return From(0); }

 private:
  bool AddValues(const Shape& shape) {
    if (std::holds_alternative<NullShape>(shape)) {
      values_.emplace_back("n", GrammarExpr::Literal("null"));
      return true;
    }
    if (const auto* const booleans = std::get_if<BooleanShape>(&shape)) {
      if (booleans->takes_true) {
        values_.emplace_back("t", GrammarExpr::Literal("true"));
      }
      if (booleans->takes_false) {
        values_.emplace_back("f", GrammarExpr::Literal("false"));
      }
      return true;
    }
    const auto* const strings = std::get_if<StringSet>(&shape);
    if (strings == nullptr || !strings->values()) {
      return false;
    }
    for (const std::string& text : *strings->values()) {
      values_.emplace_back("s" + text, writer_->texts().Literal(text));
    }
    return true;
  }

  // What follows where the values of the bits of `used` are written.
  GrammarExpr From(size_t used) {
    const auto [found, added] = rules_.emplace(used, 0);
    if (!added) {
      return GrammarExpr::Rule(found->second);
    }
    const size_t rule = writer_->grammar().AddRule("items");
    found->second = rule;
    const auto count = static_cast<size_t>(std::popcount(used));
    std::vector<GrammarExpr> ways;
    if (count >= shape_.min) {
      ways.push_back(count == 0 ? GrammarExpr::EmptyText() : writer_->texts().Whitespace());
    }
    for (size_t i = 0; i < values_.size() && count < shape_.max; ++i) {
      const size_t bit = size_t{1} << i;
      if ((used & bit) == 0) {
        ways.push_back(
            GrammarExpr::Sequence({count == 0 ? GrammarExpr::EmptyText() : writer_->texts().Comma(),
                                   values_[i].second, From(used | bit)}));
      }
    }
    writer_->grammar().SetBody(rule, GrammarExpr::Choice(std::move(ways)));
    return GrammarExpr::Rule(rule);
  }

  const ArrayShape& shape_;
  SchemaGrammar* const writer_;
  std::vector<std::pair<std::string, GrammarExpr>> values_;  // What tells them apart; how written.
  std::map<size_t, size_t> rules_;
};

}  // namespace

absl::StatusOr<GrammarExpr> WriteArray(const ArrayShape& shape, SchemaGrammar* writer) {
  GrammarExpr content = GrammarExpr::EmptyText();
  if (shape.unique != nullptr && shape.max > 1) {
    UniqueArray unique(shape, writer);
    ASSIGN_OR_RETURN(const bool few, unique.ReadValues());
    if (!few) {
      return writer->reader().keywords().Unsupported(
          *shape.unique, "uniqueItems", "the items of an array would have to be kept in mind");
    }
    content = unique.Content();
  } else if (shape.contains.empty()) {
    RETURN_IF_ERROR(writer->budget()->AddState(0));
    if (std::min(shape.items.size(), shape.max) > kMaxPositions) {
      return SchemaTooComplex("items that are listed", kMaxPositions);
    }
    content = PlainArray(shape, writer).Content();
  } else {
    ASSIGN_OR_RETURN(content, CountedArray(shape, writer).Content());
  }
  return GrammarExpr::Sequence({GrammarExpr::Literal("["), writer->texts().Whitespace(),
                                std::move(content), GrammarExpr::Literal("]")});
}

}  // namespace strata
