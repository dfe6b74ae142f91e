#include "text/grammar/shape.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace strata {
namespace {

const JsonValue& FalseSchema() {
  static const JsonValue* const value = new JsonValue(JsonValue::Boolean(false));
  return *value;
}

absl::StatusOr<std::optional<Shape>> Both(const NullShape& /*a*/, const NullShape& /*b*/,
                                          WorkBudget* /*budget*/) {
  return NullShape();
}

absl::StatusOr<std::optional<Shape>> Both(const BooleanShape& a, const BooleanShape& b,
                                          WorkBudget* /*budget*/) {
  const BooleanShape both = {.takes_false = a.takes_false && b.takes_false,
                             .takes_true = a.takes_true && b.takes_true};
  if (!both.takes_false && !both.takes_true) {
    return std::nullopt;
  }
  return both;
}

template <typename Set>
absl::StatusOr<std::optional<Shape>> BothSets(const Set& a, const Set& b, WorkBudget* budget) {
  ASSIGN_OR_RETURN(Set both, a.Intersection(b, budget));
  if (both.IsEmpty()) {
    return std::nullopt;
  }
  return both;
}

absl::StatusOr<std::optional<Shape>> Both(const NumberSet& a, const NumberSet& b,
                                          WorkBudget* budget) {
  return BothSets(a, b, budget);
}

absl::StatusOr<std::optional<Shape>> Both(const StringSet& a, const StringSet& b,
                                          WorkBudget* budget) {
  return BothSets(a, b, budget);
}

size_t PartsOf(const Goal& goal) { return 1 + goal.conditions().size(); }

// Conditions of one are looked for among those of the other.
size_t PartsOfBoth(const Goal& a, const Goal& b) { return PartsOf(a) * PartsOf(b); }

size_t PartsOf(const ObjectShape& shape) {
  size_t parts = 1 + shape.seen.listed();
  for (const ObjectShape::Property& property : shape.properties) {
    parts += PartsOf(property.goal) + WorkBudget::PartsOf(property.name);
  }
  for (const ObjectShape::Rule& rule : shape.rules) {
    parts += PartsOf(rule.goal) + rule.names.listed();
  }
  return parts;
}

absl::StatusOr<std::optional<Shape>> Both(const ArrayShape& a, const ArrayShape& b,
                                          WorkBudget* budget) {
  RETURN_IF_ERROR(
      budget->AddParts(PartsOfBoth(a.rest, b.rest) + a.contains.size() + b.contains.size()));
  for (size_t i = 0; i < std::max(a.items.size(), b.items.size()); ++i) {
    RETURN_IF_ERROR(budget->AddParts(PartsOfBoth(a.At(i), b.At(i))));
  }
  ArrayShape both = a;
  const size_t listed = std::max(a.items.size(), b.items.size());
  both.items.clear();
  for (size_t i = 0; i < listed; ++i) {
    both.items.push_back(a.At(i));
    both.items.back().Add(b.At(i));
  }
  both.rest.Add(b.rest);
  both.min = std::max(a.min, b.min);
  both.max = std::min(a.max, b.max);
  both.contains.insert(both.contains.end(), b.contains.begin(), b.contains.end());
  both.unique = a.unique != nullptr ? a.unique : b.unique;
  both.seen = std::max(a.seen, b.seen);
  both.all_seen = a.all_seen || b.all_seen;
  // An item that nothing can be ends the array.
  for (size_t i = 0; i < both.items.size(); ++i) {
    if (both.items[i].IsNothing()) {
      both.max = std::min(both.max, i);
      break;
    }
  }
  if (both.rest.IsNothing()) {
    both.max = std::min(both.max, both.items.size());
  }
  if (both.min > both.max) {
    return std::nullopt;
  }
  return both;
}

absl::StatusOr<std::optional<Shape>> Both(const ObjectShape& a, const ObjectShape& b,
                                          WorkBudget* budget) {
  RETURN_IF_ERROR(budget->AddParts(PartsOf(a) + PartsOf(b)));
  RETURN_IF_ERROR(budget->AddParts((a.properties.size() + b.properties.size()) *
                                   (a.rules.size() + b.rules.size())));
  ObjectShape both = a;
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < a.properties.size(); ++i) {
    places.emplace(a.properties[i].name, i);
  }
  std::vector<bool> moved(a.properties.size());
  for (const ObjectShape::Property& property : b.properties) {
    const auto place = places.find(property.name);
    if (place == places.end()) {
      both.properties.push_back(property);
      continue;
    }
    ObjectShape::Property shared = both.properties[place->second];
    RETURN_IF_ERROR(budget->AddParts(PartsOfBoth(shared.goal, property.goal)));
    shared.goal.Add(property.goal);
    shared.required |= property.required;
    if (property.declared && !shared.declared) {
      // Its place is where it is declared.
      shared.declared = true;
      moved[place->second] = true;
      both.properties.push_back(std::move(shared));
    } else {
      both.properties[place->second] = std::move(shared);
    }
  }
  std::vector<ObjectShape::Property> kept;
  kept.reserve(both.properties.size());
  for (size_t i = 0; i < both.properties.size(); ++i) {
    if (i >= moved.size() || !moved[i]) {
      kept.push_back(std::move(both.properties[i]));
    }
  }
  both.properties = std::move(kept);
  both.rules.insert(both.rules.end(), b.rules.begin(), b.rules.end());
  both.counted = b.min > a.min ? b.counted : a.counted;
  both.min = std::max(a.min, b.min);
  both.max = std::min(a.max, b.max);
  both.listed = a.listed || b.listed;
  ASSIGN_OR_RETURN(both.seen, a.seen.Union(b.seen, budget));
  size_t required = 0;
  for (ObjectShape::Property& property : both.properties) {
    for (const ObjectShape::Rule& rule : both.rules) {
      if (rule.goal.IsNothing() && rule.names.Contains(property.name)) {
        property.goal = Goal::Nothing();
      }
    }
    required += property.required ? 1 : 0;
    if (property.required && property.goal.IsNothing()) {
      return std::nullopt;
    }
  }
  if (both.min > both.max || required > both.max) {
    return std::nullopt;
  }
  return both;
}

}  // namespace

JsonType TypeOf(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      return JsonType::kNull;
    case JsonValue::Kind::kBoolean:
      return JsonType::kBoolean;
    case JsonValue::Kind::kNumber:
      return JsonType::kNumber;
    case JsonValue::Kind::kString:
      return JsonType::kString;
    case JsonValue::Kind::kArray:
      return JsonType::kArray;
    case JsonValue::Kind::kObject:
      break;
  }
  return JsonType::kObject;
}

Condition Condition::Opposite() const {
  switch (kind) {
    case Kind::kHolds:
      return {Kind::kFails, value};
    case Kind::kFails:
      return {Kind::kHolds, value};
    case Kind::kEquals:
      return {Kind::kDiffers, value};
    case Kind::kDiffers:
      break;
  }
  return {Kind::kEquals, value};
}

Goal::Goal(Condition condition) {
  if (condition.kind == Condition::Kind::kHolds && condition.value->IsBoolean(true)) {
    return;
  }
  const bool never =
      (condition.kind == Condition::Kind::kHolds && condition.value->IsBoolean(false)) ||
      (condition.kind == Condition::Kind::kFails && condition.value->IsBoolean(true));
  conditions_ = {never ? Condition{Condition::Kind::kHolds, &FalseSchema()} : condition};
}

Goal Goal::Nothing() { return Goal({Condition::Kind::kHolds, &FalseSchema()}); }

bool Goal::IsNothing() const {
  return conditions_.size() == 1 && conditions_[0].value == &FalseSchema();
}

void Goal::Add(const Goal& other) {
  if (IsNothing() || other.IsAnything()) {
    return;
  }
  if (other.IsNothing()) {
    conditions_ = other.conditions_;
    return;
  }
  for (const Condition& condition : other.conditions_) {
    if (std::find(conditions_.begin(), conditions_.end(), condition) == conditions_.end()) {
      conditions_.push_back(condition);
    }
  }
}

const ObjectShape::Property* ObjectShape::Find(std::string_view name) const {
  const auto found = std::find_if(properties.begin(), properties.end(),
                                  [name](const Property& p) { return p.name == name; });
  return found == properties.end() ? nullptr : &*found;
}

Shape AnyOfType(JsonType type) {
  switch (type) {
    case JsonType::kNull:
      return NullShape();
    case JsonType::kBoolean:
      return BooleanShape();
    case JsonType::kNumber:
      return NumberSet();
    case JsonType::kString:
      return StringSet();
    case JsonType::kArray:
      return ArrayShape();
    case JsonType::kObject:
      break;
  }
  return ObjectShape();
}

absl::StatusOr<std::optional<Shape>> Intersection(const Shape& a, const Shape& b,
                                                  WorkBudget* budget) {
  STRATA_CHECK(a.index() == b.index());
  return std::visit(
      [&b, budget](const auto& own) {
        return Both(own, std::get<std::decay_t<decltype(own)>>(b), budget);
      },
      a);
}

}  // namespace strata
