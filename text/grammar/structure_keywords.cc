// The keywords of arrays and objects.
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/status.h"
#include "text/grammar/keyword_reader.h"
#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

Goal Holds(const JsonValue& schema) { return Goal({Condition::Kind::kHolds, &schema}); }
Goal Fails(const JsonValue& schema) { return Goal({Condition::Kind::kFails, &schema}); }

}  // namespace

absl::StatusOr<Shape> KeywordReader::Arrays(const JsonValue& schema) {
  ArrayShape shape;
  ASSIGN_OR_RETURN(const JsonValue* const prefix,
                   Find(schema, "prefixItems", JsonValue::Kind::kArray));
  if (prefix != nullptr) {
    for (const JsonValue& item : prefix->items) {
      RETURN_IF_ERROR(CheckSchema(schema, "prefixItems", item));
      shape.items.push_back(Holds(item));
    }
    shape.seen = prefix->items.size();
  }
  ASSIGN_OR_RETURN(const JsonValue* const items, FindSchema(schema, "items"));
  if (items != nullptr) {
    shape.rest = Holds(*items);
    shape.all_seen = true;
  }
  ASSIGN_OR_RETURN(shape.min, Count(schema, "minItems", 0));
  ASSIGN_OR_RETURN(shape.max, Count(schema, "maxItems", kNoCount));
  ASSIGN_OR_RETURN(const JsonValue* const unique,
                   Find(schema, "uniqueItems", JsonValue::Kind::kBoolean));
  shape.unique = unique != nullptr && unique->boolean ? &schema : nullptr;
  ASSIGN_OR_RETURN(const JsonValue* const contains, FindSchema(schema, "contains"));
  if (contains != nullptr) {
    ASSIGN_OR_RETURN(const size_t min, Count(schema, "minContains", 1));
    ASSIGN_OR_RETURN(const size_t max, Count(schema, "maxContains", kNoCount));
    shape.contains.push_back({{Condition::Kind::kHolds, contains}, 0, min, max});
  }
  return shape;
}

absl::StatusOr<Shapes> KeywordReader::ArrayFails(const JsonValue& schema) {
  ASSIGN_OR_RETURN(const Shape own, Arrays(schema));
  const auto& holds = std::get<ArrayShape>(own);
  Shapes result;
  if (holds.unique != nullptr) {
    return Unsupported(schema, "uniqueItems", "it stands where it must not hold");
  }
  for (size_t i = 0; i < holds.items.size(); ++i) {
    ArrayShape other;
    other.items.resize(i + 1);
    other.items[i] = Fails(schema.Find("prefixItems")->items[i]);
    other.min = i + 1;
    result.emplace_back(std::move(other));
    RETURN_IF_ERROR(budget_->AddAlternative(result.size()));
  }
  if (!holds.rest.IsAnything()) {
    ArrayShape other;
    other.contains.push_back(
        {{Condition::Kind::kFails, schema.Find("items")}, holds.items.size(), 1, kNoCount});
    other.min = holds.items.size() + 1;
    result.emplace_back(std::move(other));
  }
  if (holds.min > 0) {
    ArrayShape other;
    other.max = holds.min - 1;
    result.emplace_back(std::move(other));
  }
  if (holds.max != kNoCount) {
    ArrayShape other;
    other.min = holds.max + 1;
    result.emplace_back(std::move(other));
  }
  for (const ArrayShape::Contains& contains : holds.contains) {
    if (contains.min > 0) {
      ArrayShape other;
      other.contains.push_back({contains.condition, 0, 0, contains.min - 1});
      result.emplace_back(std::move(other));
    }
    if (contains.max != kNoCount) {
      ArrayShape other;
      other.contains.push_back({contains.condition, 0, contains.max + 1, kNoCount});
      result.emplace_back(std::move(other));
    }
  }
  return result;
}

absl::Status KeywordReader::ReadNames(const JsonValue& schema, ObjectShape* shape) {
  std::set<std::string> names;
  ASSIGN_OR_RETURN(const JsonValue* const properties,
                   Find(schema, "properties", JsonValue::Kind::kObject));
  if (properties != nullptr) {
    for (const auto& [name, value] : properties->members) {
      RETURN_IF_ERROR(CheckSchema(schema, "properties", value));
      shape->properties.push_back({name, Holds(value), /*required=*/false, /*declared=*/true});
      names.insert(name);
    }
    shape->listed = true;
  }
  KeySet looked_at = KeySet::Of(names);
  ASSIGN_OR_RETURN(const JsonValue* const patterns,
                   Find(schema, "patternProperties", JsonValue::Kind::kObject));
  ASSIGN_OR_RETURN(const JsonValue* const others, FindSchema(schema, "additionalProperties"));
  if (patterns != nullptr) {
    for (const auto& [pattern, value] : patterns->members) {
      RETURN_IF_ERROR(CheckSchema(schema, "patternProperties", value));
      ASSIGN_OR_RETURN(const RegexPtr regex, Pattern(schema, "patternProperties", pattern));
      ASSIGN_OR_RETURN(AutomatonPtr texts, AutomatonOf(regex, budget_));
      KeySet matching = KeySet::Of(std::move(texts));
      if (tracks_members_ || others != nullptr) {
        ASSIGN_OR_RETURN(looked_at, looked_at.Union(matching, budget_));
      }
      if (!value.IsBoolean(true)) {
        shape->rules.push_back({std::move(matching), Holds(value)});
      }
    }
  }
  if (others != nullptr) {
    ASSIGN_OR_RETURN(KeySet rest, looked_at.Complement(budget_));
    if (!Holds(*others).IsAnything()) {
      shape->rules.push_back({std::move(rest), Holds(*others)});
    }
    looked_at = KeySet::All();
  }
  if (tracks_members_) {
    shape->seen = std::move(looked_at);
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> KeywordReader::Objects(const JsonValue& schema) {
  ObjectShape shape;
  RETURN_IF_ERROR(ReadNames(schema, &shape));
  ASSIGN_OR_RETURN(const JsonValue* const required,
                   Find(schema, "required", JsonValue::Kind::kArray));
  if (required != nullptr) {
    std::map<std::string_view, size_t> places;
    for (size_t i = 0; i < shape.properties.size(); ++i) {
      places.emplace(shape.properties[i].name, i);
    }
    for (const JsonValue& name : required->items) {
      if (!name.IsString()) {
        return Invalid(schema, "required", "has to be a list of names");
      }
      const auto [place, added] = places.emplace(name.text, shape.properties.size());
      if (added) {
        shape.properties.push_back({name.text, Goal(), false});
      }
      shape.properties[place->second].required = true;
    }
  }
  ASSIGN_OR_RETURN(shape.min, Count(schema, "minProperties", 0));
  ASSIGN_OR_RETURN(shape.max, Count(schema, "maxProperties", kNoCount));
  shape.counted = &schema;
  // Names that are refused, and required ones that are refused, are seen where shapes meet.
  return shape;
}

absl::StatusOr<Shapes> KeywordReader::ObjectFails(const JsonValue& schema) {
  Shapes result;
  ASSIGN_OR_RETURN(const Shape own, Objects(schema));
  const auto& holds = std::get<ObjectShape>(own);
  for (const char* const keyword : {"patternProperties", "additionalProperties"}) {
    const JsonValue* const value = schema.Find(keyword);
    const bool says = value != nullptr && !value->IsBoolean(true) &&
                      !(value->IsObject() && value->members.empty());
    if (says) {
      return Unsupported(schema, keyword, "it stands where it must not hold");
    }
  }
  for (const ObjectShape::Property& property : holds.properties) {
    const JsonValue* const properties = schema.Find("properties");
    const JsonValue* const value =
        properties == nullptr ? nullptr : properties->Find(property.name);
    if (value != nullptr && !value->IsBoolean(true)) {
      ObjectShape other;
      other.properties.push_back(
          {property.name, Fails(*value), /*required=*/true, /*declared=*/false});
      result.emplace_back(std::move(other));
    }
    if (property.required) {
      ObjectShape other;
      other.properties.push_back({property.name, Goal::Nothing(), false});
      result.emplace_back(std::move(other));
    }
  }
  if (holds.min > 0) {
    ObjectShape other;
    other.max = holds.min - 1;
    result.emplace_back(std::move(other));
  }
  if (holds.max != kNoCount) {
    ObjectShape other;
    other.min = holds.max + 1;
    other.counted = &schema;
    result.emplace_back(std::move(other));
  }
  return result;
}

}  // namespace strata
