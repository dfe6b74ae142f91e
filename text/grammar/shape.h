// What a schema admits, type by type, with nothing left to look up. Pure; any thread.
//
// A place of a schema is read as alternatives, each of one type: a Shape. What is below it, the
// values of members and items, is kept as Goals: which parts of the schema have to hold there. They
// are read in their turn, so that schemas may refer to themselves.
#ifndef STRATA_TEXT_GRAMMAR_SHAPE_H_
#define STRATA_TEXT_GRAMMAR_SHAPE_H_

#include <array>
#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/json_value.h"
#include "text/grammar/key_set.h"
#include "text/grammar/number_set.h"
#include "text/grammar/string_set.h"

namespace strata {

enum class JsonType { kNull, kBoolean, kNumber, kString, kArray, kObject };
inline constexpr std::array<JsonType, 6> kJsonTypes = {JsonType::kObject,  JsonType::kArray,
                                                       JsonType::kString,  JsonType::kNumber,
                                                       JsonType::kBoolean, JsonType::kNull};
JsonType TypeOf(const JsonValue& value);

// One condition on a value.
struct Condition {
  enum class Kind {
    kHolds,    // The schema `value` holds,
    kFails,    // or does not.
    kEquals,   // It is `value`,
    kDiffers,  // or is not.
  };
  Condition Opposite() const;
  friend auto operator<=>(const Condition& a, const Condition& b) = default;

  Kind kind;
  const JsonValue* value;
};

// Conditions of which all have to hold, each once, in the order in which they came. None: any
// value.
class Goal {
 public:
  Goal() = default;
  explicit Goal(Condition condition);
  // No value.
  static Goal Nothing();

  void Add(const Goal& other);
  const std::vector<Condition>& conditions() const { return conditions_; }
  bool IsAnything() const { return conditions_.empty(); }
  bool IsNothing() const;
  friend auto operator<=>(const Goal& a, const Goal& b) = default;

 private:
  std::vector<Condition> conditions_;
};

struct NullShape {};

struct BooleanShape {
  bool takes_false = true;
  bool takes_true = true;
};

inline constexpr size_t kNoCount = static_cast<size_t>(-1);

struct ArrayShape {
  // So many items, from `first` on, for which `condition` holds.
  struct Contains {
    Condition condition;
    size_t first;
    size_t min;
    size_t max;
  };

  // The goal of the item at `index`.
  const Goal& At(size_t index) const { return index < items.size() ? items[index] : rest; }

  std::vector<Goal> items;
  Goal rest;  // Of all items behind these.
  size_t min = 0;
  size_t max = kNoCount;
  std::vector<Contains> contains;
  const JsonValue* unique = nullptr;  // The keyword's schema, where no two items may be the same.
  // Items that keywords have looked at: so many, or all (unevaluatedItems).
  size_t seen = 0;
  bool all_seen = false;
};

struct ObjectShape {
  struct Property {
    std::string name;
    Goal goal;
    bool required = false;
    // By the keyword `properties`. Those that are only mentioned are written behind these.
    bool declared = false;
  };
  // For all members whose name is among `names`, these listed above too.
  struct Rule {
    KeySet names;
    Goal goal;
  };

  const Property* Find(std::string_view name) const;

  std::vector<Property> properties;  // In the order in which they are written.
  std::vector<Rule> rules;
  size_t min = 0;
  size_t max = kNoCount;
  const JsonValue* counted = nullptr;  // The schema that gave `min`.
  KeySet seen;          // Names that keywords have looked at (unevaluatedProperties).
  bool listed = false;  // The keyword `properties` was there.
};

using Shape = std::variant<NullShape, BooleanShape, NumberSet, StringSet, ArrayShape, ObjectShape>;
// Of one type; a value is admitted where one of them has it.
using Shapes = std::vector<Shape>;

// All values of the type.
Shape AnyOfType(JsonType type);
// Of two shapes of the same type; nothing where it is seen to be empty. Goals are not looked into.
absl::StatusOr<std::optional<Shape>> Intersection(const Shape& a, const Shape& b,
                                                  WorkBudget* budget);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_SHAPE_H_
