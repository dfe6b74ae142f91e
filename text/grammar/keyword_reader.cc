#include "text/grammar/keyword_reader.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "common/status.h"
#include "text/grammar/regex_parser.h"
#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

bool Among(std::string_view keyword, std::initializer_list<std::string_view> keywords) {
  return std::find(keywords.begin(), keywords.end(), keyword) != keywords.end();
}

std::string_view NameOf(JsonType type) {
  switch (type) {
    case JsonType::kNull:
      return "null";
    case JsonType::kBoolean:
      return "boolean";
    case JsonType::kNumber:
      return "number";
    case JsonType::kString:
      return "string";
    case JsonType::kArray:
      return "array";
    case JsonType::kObject:
      break;
  }
  return "object";
}

}  // namespace

bool KeywordReader::IsOwn(std::string_view keyword, JsonType type) {
  switch (type) {
    case JsonType::kNumber:
      return Among(keyword,
                   {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
    case JsonType::kString:
      return Among(keyword, {"minLength", "maxLength", "pattern"});
    case JsonType::kArray:
      return Among(keyword, {"prefixItems", "items", "minItems", "maxItems", "uniqueItems",
                             "contains", "minContains", "maxContains"});
    case JsonType::kObject:
      return Among(keyword, {"properties", "patternProperties", "additionalProperties", "required",
                             "minProperties", "maxProperties"});
    case JsonType::kNull:
    case JsonType::kBoolean:
      break;
  }
  return false;
}

absl::Status KeywordReader::Invalid(const JsonValue& schema, std::string_view keyword,
                                    std::string_view what) {
  return SchemaInvalid(document_.PathOf(&schema) + "/" + std::string(keyword), what);
}

absl::Status KeywordReader::Unsupported(const JsonValue& schema, std::string_view keyword,
                                        std::string_view why) {
  return SchemaUnsupported(keyword, document_.PathOf(&schema), why);
}

absl::StatusOr<const JsonValue*> KeywordReader::Find(const JsonValue& schema,
                                                     std::string_view keyword,
                                                     JsonValue::Kind kind) {
  const JsonValue* const value = schema.Find(keyword);
  if (value != nullptr && value->kind != kind) {
    return Invalid(schema, keyword, "is of the wrong type");
  }
  return value;
}

absl::Status KeywordReader::CheckSchema(const JsonValue& schema, std::string_view keyword,
                                        const JsonValue& value) {
  if (!value.IsObject() && value.kind != JsonValue::Kind::kBoolean) {
    return Invalid(schema, keyword, "has to be a schema: an object, true or false");
  }
  return absl::OkStatus();
}

absl::StatusOr<const JsonValue*> KeywordReader::FindSchema(const JsonValue& schema,
                                                           std::string_view keyword) {
  const JsonValue* const value = schema.Find(keyword);
  if (value != nullptr) {
    RETURN_IF_ERROR(CheckSchema(schema, keyword, *value));
  }
  return value;
}

absl::StatusOr<size_t> KeywordReader::Count(const JsonValue& schema, std::string_view keyword,
                                            size_t otherwise) {
  ASSIGN_OR_RETURN(const JsonValue* const value, Find(schema, keyword, JsonValue::Kind::kNumber));
  if (value == nullptr) {
    return otherwise;
  }
  const std::optional<uint64_t> count = value->number.ToCount();
  if (!count) {
    return Invalid(schema, keyword, "has to be a whole number from 0 to 2^62");
  }
  return *count;
}

absl::StatusOr<RegexPtr> KeywordReader::Pattern(const JsonValue& schema, std::string_view keyword,
                                                const std::string& pattern) {
  absl::StatusOr<RegexPtr> parsed = ParsePattern(pattern, PatternUse::kSearch, budget_);
  if (absl::IsUnimplemented(parsed.status())) {
    return Unsupported(
        schema, keyword,
        "the pattern " + QuotedText(pattern) + " " + std::string(parsed.status().message()));
  }
  if (!parsed.ok() && ReasonOf(parsed.status()).empty()) {
    return Invalid(schema, keyword,
                   "has the pattern " + QuotedText(pattern) + ", which " +
                       std::string(parsed.status().message()));
  }
  return parsed;
}

absl::StatusOr<Shape> KeywordReader::Own(const JsonValue& schema, JsonType type) {
  switch (type) {
    case JsonType::kNumber:
      return Numbers(schema);
    case JsonType::kString:
      return Strings(schema);
    case JsonType::kArray:
      return Arrays(schema);
    case JsonType::kObject:
      return Objects(schema);
    case JsonType::kNull:
    case JsonType::kBoolean:
      break;
  }
  return AnyOfType(type);
}

absl::StatusOr<Shapes> KeywordReader::OwnFails(const JsonValue& schema, JsonType type) {
  return type == JsonType::kArray ? ArrayFails(schema) : ObjectFails(schema);
}

absl::StatusOr<Shape> KeywordReader::Numbers(const JsonValue& schema) {
  NumberSet set;
  const auto narrow = [&](const absl::StatusOr<NumberSet>& by) -> absl::Status {
    RETURN_IF_ERROR(by.status());
    ASSIGN_OR_RETURN(set, set.Intersection(*by, budget_));
    return absl::OkStatus();
  };
  for (const std::string_view keyword : {"minimum", "exclusiveMinimum"}) {
    ASSIGN_OR_RETURN(const JsonValue* const bound, Find(schema, keyword, JsonValue::Kind::kNumber));
    if (bound != nullptr) {
      RETURN_IF_ERROR(
          narrow(NumberSet::AtLeast(bound->number, keyword == "exclusiveMinimum", budget_)));
    }
  }
  for (const std::string_view keyword : {"maximum", "exclusiveMaximum"}) {
    ASSIGN_OR_RETURN(const JsonValue* const bound, Find(schema, keyword, JsonValue::Kind::kNumber));
    if (bound != nullptr) {
      RETURN_IF_ERROR(
          narrow(NumberSet::AtMost(bound->number, keyword == "exclusiveMaximum", budget_)));
    }
  }
  ASSIGN_OR_RETURN(const JsonValue* const divisor,
                   Find(schema, "multipleOf", JsonValue::Kind::kNumber));
  if (divisor != nullptr) {
    if (divisor->number.negative || divisor->number.IsZero()) {
      return Invalid(schema, "multipleOf", "has to be above 0");
    }
    ASSIGN_OR_RETURN(const std::optional<NumberSet> multiples,
                     NumberSet::MultiplesOf(divisor->number, budget_));
    if (!multiples) {
      return Unsupported(schema, "multipleOf",
                         "its multiples need too many states of an automaton");
    }
    RETURN_IF_ERROR(narrow(*multiples));
  }
  return set;
}

absl::StatusOr<Shape> KeywordReader::Strings(const JsonValue& schema) {
  ASSIGN_OR_RETURN(const size_t min, Count(schema, "minLength", 0));
  ASSIGN_OR_RETURN(const size_t max, Count(schema, "maxLength", StringSet::kNoLimit));
  ASSIGN_OR_RETURN(const JsonValue* const pattern,
                   Find(schema, "pattern", JsonValue::Kind::kString));
  StringSet set = StringSet::OfLength(min, max);
  if (pattern != nullptr) {
    ASSIGN_OR_RETURN(RegexPtr regex, Pattern(schema, "pattern", pattern->text));
    ASSIGN_OR_RETURN(set, set.Intersection(StringSet::Matching(std::move(regex)), budget_));
  }
  return set;
}

absl::StatusOr<std::optional<Shape>> KeywordReader::Type(const JsonValue& schema, JsonType type) {
  const JsonValue& value = *schema.Find("type");
  std::vector<std::string_view> names;
  for (const JsonValue& item : value.items) {
    if (!item.IsString()) {
      return Invalid(schema, "type", "has to be a name or a list of names");
    }
    names.push_back(item.text);
  }
  if (value.IsString()) {
    names.push_back(value.text);
  } else if (!value.IsArray()) {
    return Invalid(schema, "type", "has to be a name or a list of names");
  }
  bool whole = false;
  bool any = false;
  for (const std::string_view name : names) {
    if (!Among(name, {"null", "boolean", "integer", "number", "string", "array", "object"})) {
      return Invalid(schema, "type", "names an unknown type " + QuotedText(name));
    }
    any |= name == NameOf(type);
    whole |= name == "integer" && type == JsonType::kNumber;
  }
  if (any) {
    return AnyOfType(type);
  }
  if (whole) {
    return NumberSet::Integers();
  }
  return std::nullopt;
}

absl::StatusOr<Shapes> KeywordReader::OneOf(std::span<const JsonValue> values, JsonType type) {
  Shapes result;
  BooleanShape booleans = {.takes_false = false, .takes_true = false};
  std::vector<Decimal> numbers;
  std::vector<std::string> texts;
  for (const JsonValue& value : values) {
    if (TypeOf(value) != type) {
      continue;
    }
    switch (type) {
      case JsonType::kNull:
        return Shapes{NullShape()};
      case JsonType::kBoolean:
        (value.boolean ? booleans.takes_true : booleans.takes_false) = true;
        break;
      case JsonType::kNumber:
        numbers.push_back(value.number);
        break;
      case JsonType::kString:
        texts.push_back(value.text);
        break;
      case JsonType::kArray: {
        ArrayShape shape;
        for (const JsonValue& item : value.items) {
          shape.items.emplace_back(Condition{Condition::Kind::kEquals, &item});
        }
        shape.rest = Goal::Nothing();
        shape.min = shape.max = value.items.size();
        result.emplace_back(std::move(shape));
        break;
      }
      case JsonType::kObject: {
        ObjectShape shape;
        std::set<std::string> names;
        for (const auto& [name, member] : value.members) {
          shape.properties.push_back(
              {name, Goal({Condition::Kind::kEquals, &member}), /*required=*/true});
          names.insert(name);
        }
        shape.rules.push_back({KeySet::AllBut(std::move(names)), Goal::Nothing()});
        result.emplace_back(std::move(shape));
        break;
      }
    }
    if (!result.empty()) {
      RETURN_IF_ERROR(budget_->AddAlternative(result.size()));
    }
  }
  if (booleans.takes_false || booleans.takes_true) {
    result.emplace_back(booleans);
  }
  if (!numbers.empty()) {
    ASSIGN_OR_RETURN(NumberSet set, NumberSet::OneOf(numbers, budget_));
    result.emplace_back(std::move(set));
  }
  if (!texts.empty()) {
    result.emplace_back(StringSet::OneOf(std::move(texts)));
  }
  return result;
}

absl::StatusOr<Shapes> KeywordReader::Equals(const JsonValue& value, JsonType type) {
  return OneOf({&value, 1}, type);
}

absl::StatusOr<Shapes> KeywordReader::NoneOf(const Shapes& shapes, JsonType type) {
  if (type == JsonType::kNull) {
    return shapes.empty() ? Shapes{NullShape()} : Shapes();
  }
  Shapes result = {AnyOfType(type)};
  for (const Shape& shape : shapes) {
    Shapes others;
    if (const auto* const booleans = std::get_if<BooleanShape>(&shape)) {
      others.emplace_back(
          BooleanShape{.takes_false = !booleans->takes_false, .takes_true = !booleans->takes_true});
    } else if (const auto* const numbers = std::get_if<NumberSet>(&shape)) {
      ASSIGN_OR_RETURN(NumberSet rest, numbers->Complement(budget_));
      others.emplace_back(std::move(rest));
    } else {
      ASSIGN_OR_RETURN(std::vector<StringSet> rest, std::get<StringSet>(shape).Complement(budget_));
      others.insert(others.end(), std::make_move_iterator(rest.begin()),
                    std::make_move_iterator(rest.end()));
    }
    Shapes both;
    for (const Shape& a : result) {
      for (const Shape& b : others) {
        ASSIGN_OR_RETURN(std::optional<Shape> shared, Intersection(a, b, budget_));
        if (shared) {
          both.push_back(*std::move(shared));
          RETURN_IF_ERROR(budget_->AddAlternative(both.size()));
        }
      }
    }
    result = std::move(both);
  }
  return result;
}

absl::StatusOr<Shapes> KeywordReader::Differs(const JsonValue& value, JsonType type) {
  if (TypeOf(value) != type) {
    return Shapes{AnyOfType(type)};
  }
  if (type == JsonType::kArray) {
    Shapes result;
    const size_t size = value.items.size();
    if (size > 0) {
      ArrayShape shorter;
      shorter.max = size - 1;
      result.emplace_back(std::move(shorter));
    }
    ArrayShape longer;
    longer.min = size + 1;
    result.emplace_back(std::move(longer));
    for (size_t i = 0; i < size; ++i) {
      ArrayShape other;
      other.items.resize(i + 1);
      other.items[i] = Goal({Condition::Kind::kDiffers, &value.items[i]});
      other.min = other.max = size;
      result.emplace_back(std::move(other));
      RETURN_IF_ERROR(budget_->AddAlternative(result.size()));
    }
    return result;
  }
  if (type == JsonType::kObject) {
    Shapes result;
    for (const auto& [name, member] : value.members) {
      ObjectShape other;
      other.properties.push_back({name, Goal({Condition::Kind::kDiffers, &member}), true});
      result.emplace_back(std::move(other));
      ObjectShape without;
      without.properties.push_back({name, Goal::Nothing(), false});
      result.emplace_back(std::move(without));
    }
    ObjectShape more;
    more.min = value.members.size() + 1;
    more.counted = &value;
    result.emplace_back(std::move(more));
    return result;
  }
  ASSIGN_OR_RETURN(const Shapes equal, Equals(value, type));
  return NoneOf(equal, type);
}

}  // namespace strata
