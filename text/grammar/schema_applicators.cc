// Keywords that apply several schemas to one value.
#include <optional>
#include <utility>

#include "common/status.h"
#include "text/grammar/schema_errors.h"
#include "text/grammar/schema_reader.h"

namespace strata {
namespace {

Condition HoldsOf(const JsonValue& schema) { return {Condition::Kind::kHolds, &schema}; }
Condition FailsOf(const JsonValue& schema) { return {Condition::Kind::kFails, &schema}; }

void AppendTo(Shapes more, Shapes* shapes) {
  shapes->insert(shapes->end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

// Objects that have a member of that name, or have none.
Shape With(const std::string& name) {
  ObjectShape shape;
  shape.properties.push_back({name, Goal(), true});
  return shape;
}
Shape Without(const std::string& name) {
  ObjectShape shape;
  shape.properties.push_back({name, Goal::Nothing(), false});
  return shape;
}

}  // namespace

absl::StatusOr<Shapes> SchemaReader::AnyOf(const JsonValue& schema, const JsonValue& list,
                                           JsonType type) {
  ASSIGN_OR_RETURN(const auto* const branches, ListOf(schema, "anyOf", list));
  Shapes result;
  for (const JsonValue& branch : *branches) {
    ASSIGN_OR_RETURN(Shapes own, Expand(HoldsOf(branch), type));
    if (Tracks(type)) {
      // Where several branches hold, what each has looked at counts.
      ASSIGN_OR_RETURN(Shapes several, Product(result, own));
      AppendTo(std::move(several), &result);
    }
    AppendTo(std::move(own), &result);
    RETURN_IF_ERROR(budget_->AddAlternative(result.size()));
  }
  return result;
}

absl::StatusOr<Shapes> SchemaReader::OneOf(const JsonValue& schema, const JsonValue& list,
                                           JsonType type) {
  ASSIGN_OR_RETURN(const auto* const branches, ListOf(schema, "oneOf", list));
  std::vector<Shapes> each;
  for (const JsonValue& branch : *branches) {
    ASSIGN_OR_RETURN(Shapes own, Expand(HoldsOf(branch), type));
    each.push_back(std::move(own));
  }
  Shapes result;
  for (size_t i = 0; i < each.size(); ++i) {
    Shapes alone = each[i];
    for (size_t j = 0; j < each.size() && !alone.empty(); ++j) {
      if (i == j) {
        continue;
      }
      ASSIGN_OR_RETURN(const Shapes shared, Product(alone, each[j]));
      if (shared.empty()) {
        continue;
      }
      absl::StatusOr<Shapes> other = Expand(FailsOf((*branches)[j]), type);
      if (!other.ok()) {
        return Annotate(other.status(), "branches " + std::to_string(i) + " and " +
                                            std::to_string(j) + " of oneOf at #" +
                                            document_.PathOf(&list) +
                                            " cannot be shown to exclude each other");
      }
      ASSIGN_OR_RETURN(alone, Product(alone, *other));
    }
    AppendTo(std::move(alone), &result);
    RETURN_IF_ERROR(budget_->AddAlternative(result.size()));
  }
  return result;
}

absl::StatusOr<Shapes> SchemaReader::IfHolds(const JsonValue& schema, JsonType type) {
  const JsonValue& condition = *schema.Find("if");
  const JsonValue* const then = schema.Find("then");
  const JsonValue* const otherwise = schema.Find("else");
  if (then == nullptr && otherwise == nullptr && !Tracks(type)) {
    return Shapes{AnyOfType(type)};
  }
  std::vector<Condition> met = {HoldsOf(condition)};
  std::vector<Condition> missed = {FailsOf(condition)};
  if (then != nullptr) {
    met.push_back(HoldsOf(*then));
  }
  if (otherwise != nullptr) {
    missed.push_back(HoldsOf(*otherwise));
  }
  ASSIGN_OR_RETURN(Shapes result, ProductOfAll(met, type));
  ASSIGN_OR_RETURN(Shapes others, ProductOfAll(missed, type));
  AppendTo(std::move(others), &result);
  return result;
}

absl::StatusOr<Shapes> SchemaReader::DependentHolds(const JsonValue& schema,
                                                    std::string_view keyword,
                                                    const JsonValue& value) {
  if (!value.IsObject()) {
    return keywords_.Invalid(schema, keyword, "has to be an object");
  }
  Shapes shapes = {AnyOfType(JsonType::kObject)};
  for (const auto& [name, needs] : value.members) {
    Shapes with = {With(name)};
    if (keyword == "dependentSchemas") {
      ASSIGN_OR_RETURN(const Shapes needed, Expand(HoldsOf(needs), JsonType::kObject));
      ASSIGN_OR_RETURN(with, Product(with, needed));
    } else {
      if (!needs.IsArray()) {
        return keywords_.Invalid(schema, keyword, "has to have lists of names");
      }
      for (const JsonValue& other : needs.items) {
        if (!other.IsString()) {
          return keywords_.Invalid(schema, keyword, "has to have lists of names");
        }
        ASSIGN_OR_RETURN(with, Product(with, {With(other.text)}));
      }
    }
    with.push_back(Without(name));
    ASSIGN_OR_RETURN(shapes, Product(shapes, with));
  }
  return shapes;
}

absl::StatusOr<Shapes> SchemaReader::DependentFails(const JsonValue& schema,
                                                    std::string_view keyword,
                                                    const JsonValue& value) {
  if (!value.IsObject()) {
    return keywords_.Invalid(schema, keyword, "has to be an object");
  }
  Shapes result;
  for (const auto& [name, needs] : value.members) {
    if (keyword == "dependentSchemas") {
      ASSIGN_OR_RETURN(const Shapes refused, Expand(FailsOf(needs), JsonType::kObject));
      ASSIGN_OR_RETURN(Shapes with, Product({With(name)}, refused));
      AppendTo(std::move(with), &result);
      continue;
    }
    for (const JsonValue& other : needs.items) {
      ASSIGN_OR_RETURN(Shapes lacking, Product({With(name)}, {Without(other.text)}));
      AppendTo(std::move(lacking), &result);
    }
  }
  return result;
}

absl::StatusOr<Shapes> SchemaReader::PropertyNames(const JsonValue& value) {
  ASSIGN_OR_RETURN(const Shapes admitted, Expand(HoldsOf(value), JsonType::kString));
  KeySet names;
  for (const Shape& shape : admitted) {
    const auto& set = std::get<StringSet>(shape);
    KeySet own;
    if (set.values()) {
      own = KeySet::Of(std::set<std::string>(set.values()->begin(), set.values()->end()));
    } else if (set.IsOfLength() && set.min() == 0 && set.max() == StringSet::kNoLimit) {
      own = KeySet::All();
    } else {
      ASSIGN_OR_RETURN(AutomatonPtr texts, set.ToAutomaton(budget_));
      own = KeySet::Of(std::move(texts));
    }
    ASSIGN_OR_RETURN(names, names.Union(own, budget_));
  }
  ObjectShape shape;
  ASSIGN_OR_RETURN(KeySet others, names.Complement(budget_));
  if (!others.IsEmpty()) {
    shape.rules.push_back({std::move(others), Goal::Nothing()});
  }
  return Shapes{shape};
}

absl::StatusOr<Shapes> SchemaReader::Unevaluated(const JsonValue& schema, Shapes shapes,
                                                 JsonType type) {
  const std::string_view keyword =
      type == JsonType::kArray ? "unevaluatedItems" : "unevaluatedProperties";
  const JsonValue* const value = schema.Find(keyword);
  if (value == nullptr || !Tracks(type)) {
    return shapes;
  }
  for (Shape& shape : shapes) {
    if (auto* const object = std::get_if<ObjectShape>(&shape)) {
      ASSIGN_OR_RETURN(KeySet others, object->seen.Complement(budget_));
      if (!others.IsEmpty() && !Goal(HoldsOf(*value)).IsAnything()) {
        object->rules.push_back({std::move(others), Goal(HoldsOf(*value))});
      }
      object->seen = KeySet::All();
      continue;
    }
    auto& array = std::get<ArrayShape>(shape);
    if (!array.contains.empty() && !value->IsBoolean(true)) {
      return keywords_.Unsupported(schema, keyword, "it depends on what contains has found");
    }
    if (!array.all_seen) {
      while (array.items.size() < array.seen) {
        array.items.push_back(array.rest);
      }
      for (size_t i = array.seen; i < array.items.size(); ++i) {
        array.items[i].Add(Goal(HoldsOf(*value)));
      }
      array.rest.Add(Goal(HoldsOf(*value)));
    }
    array.all_seen = true;
  }
  return Product(shapes, {AnyOfType(type)});
}

}  // namespace strata
