#include "text/grammar/schema_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status.h"
#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

constexpr size_t kMaxNeverDepth = 3;

Condition HoldsCondition(const JsonValue& schema) { return {Condition::Kind::kHolds, &schema}; }
Condition FailsCondition(const JsonValue& schema) { return {Condition::Kind::kFails, &schema}; }

// Conditions that fail give no annotations, and neither do those that only have to be tried.
Shapes WithoutTraces(Shapes shapes) {
  for (Shape& shape : shapes) {
    if (auto* const array = std::get_if<ArrayShape>(&shape)) {
      array->seen = 0;
      array->all_seen = false;
    } else if (auto* const object = std::get_if<ObjectShape>(&shape)) {
      object->seen = KeySet();
      object->listed = false;
    }
  }
  return shapes;
}

bool IsScalar(JsonType type) { return type != JsonType::kArray && type != JsonType::kObject; }

bool IsSchema(const JsonValue& value) {
  return value.IsObject() || value.kind == JsonValue::Kind::kBoolean;
}

void Append(Shapes more, Shapes* shapes) {
  shapes->insert(shapes->end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

}  // namespace

SchemaReader::SchemaReader(const SchemaDocument* document, bool closed, WorkBudget* budget)
    : document_(*document),
      closed_(closed),
      tracks_items_(document->Mentions("unevaluatedItems")),
      tracks_members_(document->Mentions("unevaluatedProperties")),
      budget_(budget),
      keywords_(document, closed || tracks_members_, budget) {}

bool SchemaReader::Tracks(JsonType type) const {
  return (type == JsonType::kArray && tracks_items_) ||
         (type == JsonType::kObject && tracks_members_);
}

absl::StatusOr<Shapes> SchemaReader::Read(const Goal& goal, JsonType type) {
  ASSIGN_OR_RETURN(Shapes shapes, ProductOfAll(goal.conditions(), type));
  if (!closed_ || type != JsonType::kObject) {
    return shapes;
  }
  for (Shape& shape : shapes) {
    auto& object = std::get<ObjectShape>(shape);
    if (object.listed && !object.seen.IsAll()) {
      ASSIGN_OR_RETURN(KeySet others, object.seen.Complement(budget_));
      object.rules.push_back({std::move(others), Goal::Nothing()});
    }
  }
  return Product(shapes, {AnyOfType(type)});
}

absl::StatusOr<Shapes> SchemaReader::ProductOfAll(const std::vector<Condition>& conditions,
                                                  JsonType type) {
  Shapes shapes = {AnyOfType(type)};
  for (const Condition& condition : conditions) {
    ASSIGN_OR_RETURN(const Shapes own, Expand(condition, type));
    ASSIGN_OR_RETURN(shapes, Product(shapes, own));
  }
  return shapes;
}

bool SchemaReader::IsNever(const Goal& goal) {
  if (goal.IsNothing()) {
    return true;
  }
  const auto known = never_.find(goal);
  if (known != never_.end()) {
    return known->second;
  }
  if (goal.IsAnything() || never_depth_ >= kMaxNeverDepth) {
    return false;
  }
  never_[goal] = false;  // As it is asked again below itself.
  ++never_depth_;
  bool never = true;
  for (const JsonType type : kJsonTypes) {
    const absl::StatusOr<Shapes> shapes = Read(goal, type);
    never = never && shapes.ok() && shapes->empty();
  }
  --never_depth_;
  never_[goal] = never;
  return never;
}

bool SchemaReader::LacksRequired(const ObjectShape& shape) {
  for (const ObjectShape::Property& property : shape.properties) {
    if (!property.required) {
      continue;
    }
    Goal goal = property.goal;
    for (const ObjectShape::Rule& rule : shape.rules) {
      if (rule.names.Contains(property.name)) {
        goal.Add(rule.goal);
      }
    }
    if (goal.conditions().size() > 1 && IsNever(goal)) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Shapes> SchemaReader::Product(const Shapes& a, const Shapes& b) {
  Shapes result;
  for (const Shape& left : a) {
    for (const Shape& right : b) {
      RETURN_IF_ERROR(budget_->TryAlternative());
      ASSIGN_OR_RETURN(std::optional<Shape> both, Intersection(left, right, budget_));
      if (!both) {
        continue;
      }
      const auto* const object = std::get_if<ObjectShape>(&*both);
      if (object != nullptr && LacksRequired(*object)) {
        continue;
      }
      result.push_back(*std::move(both));
      RETURN_IF_ERROR(budget_->AddAlternative(result.size()));
    }
  }
  return result;
}

absl::StatusOr<Shapes> SchemaReader::Expand(const Condition& condition, JsonType type) {
  const Key key(condition, type);
  const auto known = known_.find(key);
  if (known != known_.end()) {
    return known->second;
  }
  if (!open_.insert(key).second) {
    return SchemaUnsupported("$ref", document_.PathOf(condition.value),
                             "the schema is defined by itself alone");
  }
  absl::StatusOr<Shapes> shapes = Compute(condition, type);
  open_.erase(key);
  if (shapes.ok()) {
    known_.emplace(key, *shapes);
  }
  return shapes;
}

absl::StatusOr<Shapes> SchemaReader::Compute(const Condition& condition, JsonType type) {
  const JsonValue& value = *condition.value;
  switch (condition.kind) {
    case Condition::Kind::kEquals:
      return keywords_.Equals(value, type);
    case Condition::Kind::kDiffers:
      return keywords_.Differs(value, type);
    case Condition::Kind::kHolds:
    case Condition::Kind::kFails:
      break;
  }
  if (!IsSchema(value)) {
    return SchemaInvalid(document_.PathOf(&value), "has to be a schema: an object, true or false");
  }
  const bool holds = condition.kind == Condition::Kind::kHolds;
  if (value.kind == JsonValue::Kind::kBoolean) {
    return value.boolean == holds ? Shapes{AnyOfType(type)} : Shapes();
  }
  if (holds) {
    return Holds(value, type);
  }
  if (!IsScalar(type)) {
    return Fails(value, type);
  }
  ASSIGN_OR_RETURN(const Shapes admitted, Expand(HoldsCondition(value), type));
  return keywords_.NoneOf(admitted, type);
}

absl::StatusOr<Shapes> SchemaReader::Holds(const JsonValue& schema, JsonType type) {
  Shapes shapes = {AnyOfType(type)};
  bool own = false;
  if (schema.Find("type") != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<Shape> admitted, keywords_.Type(schema, type));
    if (!admitted) {
      return Shapes();
    }
  }
  for (const auto& [keyword, value] : schema.members) {
    if (KeywordReader::IsOwn(keyword, type)) {
      if (!std::exchange(own, true)) {
        ASSIGN_OR_RETURN(const Shape admitted, keywords_.Own(schema, type));
        ASSIGN_OR_RETURN(shapes, Product(shapes, {admitted}));
      }
      continue;
    }
    ASSIGN_OR_RETURN(const std::optional<Shapes> admitted,
                     KeywordHolds(schema, keyword, value, type));
    if (admitted) {
      ASSIGN_OR_RETURN(shapes, Product(shapes, *admitted));
    }
  }
  return Unevaluated(schema, std::move(shapes), type);
}

absl::StatusOr<Shapes> SchemaReader::Fails(const JsonValue& schema, JsonType type) {
  Shapes shapes;
  bool own = false;
  for (const auto& [keyword, value] : schema.members) {
    if (KeywordReader::IsOwn(keyword, type)) {
      if (!std::exchange(own, true)) {
        ASSIGN_OR_RETURN(Shapes refused, keywords_.OwnFails(schema, type));
        Append(std::move(refused), &shapes);
      }
      continue;
    }
    ASSIGN_OR_RETURN(Shapes refused, KeywordFails(schema, keyword, value, type));
    Append(std::move(refused), &shapes);
    RETURN_IF_ERROR(budget_->AddAlternative(shapes.size()));
  }
  // Leaves out what is empty.
  ASSIGN_OR_RETURN(shapes, Product(shapes, {AnyOfType(type)}));
  return WithoutTraces(std::move(shapes));
}

absl::StatusOr<const std::vector<JsonValue>*> SchemaReader::ListOf(const JsonValue& schema,
                                                                   std::string_view keyword,
                                                                   const JsonValue& value) {
  if (!value.IsArray() || value.items.empty()) {
    return keywords_.Invalid(schema, keyword, "has to be a list that is not empty");
  }
  return &value.items;
}

absl::StatusOr<const JsonValue*> SchemaReader::Target(const JsonValue& schema,
                                                      std::string_view keyword,
                                                      const JsonValue& value) {
  if (!value.IsString()) {
    return keywords_.Invalid(schema, keyword, "has to be a reference");
  }
  return keyword == "$ref" ? document_.Resolve(&schema, value.text)
                           : document_.ResolveDynamic(&schema, value.text);
}

absl::Status SchemaReader::CheckDialect(const JsonValue& schema, const JsonValue& dialect) {
  // Another one may mean anything by a keyword.
  for (const std::string_view known : {"https://json-schema.org/", "http://json-schema.org/"}) {
    if (dialect.IsString() && dialect.text.starts_with(known)) {
      return absl::OkStatus();
    }
  }
  return keywords_.Unsupported(schema, "$schema", "it names a dialect that is not known");
}

absl::StatusOr<std::optional<Shapes>> SchemaReader::KeywordHolds(const JsonValue& schema,
                                                                 std::string_view keyword,
                                                                 const JsonValue& value,
                                                                 JsonType type) {
  if (keyword == "type") {
    ASSIGN_OR_RETURN(const std::optional<Shape> shape, keywords_.Type(schema, type));
    return shape ? Shapes{*shape} : Shapes();
  }
  if (keyword == "enum") {
    if (!value.IsArray()) {
      return keywords_.Invalid(schema, keyword, "has to be a list");
    }
    return keywords_.OneOf(value.items, type);
  }
  if (keyword == "const") {
    return keywords_.Equals(value, type);
  }
  if (keyword == "$ref" || keyword == "$dynamicRef") {
    ASSIGN_OR_RETURN(const JsonValue* const target, Target(schema, keyword, value));
    return Expand(HoldsCondition(*target), type);
  }
  if (keyword == "allOf") {
    ASSIGN_OR_RETURN(const auto* const list, ListOf(schema, keyword, value));
    std::vector<Condition> all;
    for (const JsonValue& item : *list) {
      all.push_back(HoldsCondition(item));
    }
    return ProductOfAll(all, type);
  }
  if (keyword == "anyOf") {
    return AnyOf(schema, value, type);
  }
  if (keyword == "oneOf") {
    return OneOf(schema, value, type);
  }
  if (keyword == "not") {
    return Expand(FailsCondition(value), type);
  }
  if (keyword == "if") {
    return IfHolds(schema, type);
  }
  if (keyword == "$schema") {
    RETURN_IF_ERROR(CheckDialect(schema, value));
  }
  if (keyword == "dependencies" || keyword == "$recursiveRef") {
    return keywords_.Unsupported(schema, keyword, "draft 2020-12 has it no more");
  }
  if (type == JsonType::kObject && keyword == "propertyNames") {
    return PropertyNames(value);
  }
  if (type == JsonType::kObject &&
      (keyword == "dependentRequired" || keyword == "dependentSchemas")) {
    return DependentHolds(schema, keyword, value);
  }
  return std::nullopt;
}

absl::StatusOr<Shapes> SchemaReader::KeywordFails(const JsonValue& schema, std::string_view keyword,
                                                  const JsonValue& value, JsonType type) {
  if (keyword == "type") {
    ASSIGN_OR_RETURN(const std::optional<Shape> shape, keywords_.Type(schema, type));
    return shape ? Shapes() : Shapes{AnyOfType(type)};
  }
  if (keyword == "enum" || keyword == "const") {
    if (keyword == "enum" && !value.IsArray()) {
      return keywords_.Invalid(schema, keyword, "has to be a list");
    }
    std::vector<Condition> all;
    if (keyword == "const") {
      all.push_back({Condition::Kind::kDiffers, &value});
    } else {
      for (const JsonValue& item : value.items) {
        all.push_back({Condition::Kind::kDiffers, &item});
      }
    }
    return ProductOfAll(all, type);
  }
  if (keyword == "$ref" || keyword == "$dynamicRef") {
    ASSIGN_OR_RETURN(const JsonValue* const target, Target(schema, keyword, value));
    return Expand(FailsCondition(*target), type);
  }
  if (keyword == "not") {
    return Expand(HoldsCondition(value), type);
  }
  if (keyword == "allOf" || keyword == "anyOf") {
    ASSIGN_OR_RETURN(const auto* const list, ListOf(schema, keyword, value));
    std::vector<Condition> all;
    Shapes some;
    for (const JsonValue& item : *list) {
      if (keyword == "anyOf") {
        all.push_back(FailsCondition(item));
        continue;
      }
      ASSIGN_OR_RETURN(Shapes refused, Expand(FailsCondition(item), type));
      Append(std::move(refused), &some);
    }
    return keyword == "allOf" ? some : ProductOfAll(all, type);
  }
  if (keyword == "oneOf") {
    ASSIGN_OR_RETURN(const auto* const list, ListOf(schema, keyword, value));
    std::vector<Condition> none;
    Shapes result;
    for (size_t i = 0; i < list->size(); ++i) {
      none.push_back(FailsCondition((*list)[i]));
      for (size_t j = i + 1; j < list->size(); ++j) {
        ASSIGN_OR_RETURN(
            Shapes two,
            ProductOfAll({HoldsCondition((*list)[i]), HoldsCondition((*list)[j])}, type));
        Append(std::move(two), &result);
        RETURN_IF_ERROR(budget_->AddAlternative(result.size()));
      }
    }
    ASSIGN_OR_RETURN(Shapes no_one, ProductOfAll(none, type));
    Append(std::move(no_one), &result);
    return result;
  }
  if (keyword == "if") {
    Shapes result;
    for (const auto& [branch, condition] :
         {std::pair("then", HoldsCondition(value)), std::pair("else", FailsCondition(value))}) {
      const JsonValue* const schema_of_branch = schema.Find(branch);
      if (schema_of_branch != nullptr) {
        ASSIGN_OR_RETURN(Shapes refused,
                         ProductOfAll({condition, FailsCondition(*schema_of_branch)}, type));
        Append(std::move(refused), &result);
      }
    }
    return result;
  }
  const bool unevaluated =
      keyword == (type == JsonType::kArray ? "unevaluatedItems" : "unevaluatedProperties");
  if (unevaluated || (type == JsonType::kObject && keyword == "propertyNames")) {
    if (value.IsBoolean(true)) {
      return Shapes();
    }
    return keywords_.Unsupported(schema, keyword, "it stands where it must not hold");
  }
  if (type == JsonType::kObject &&
      (keyword == "dependentRequired" || keyword == "dependentSchemas")) {
    return DependentFails(schema, keyword, value);
  }
  return Shapes();
}

}  // namespace strata
