// JSON as a schema is made of: numbers exact, members in their order. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_JSON_VALUE_H_
#define STRATA_TEXT_GRAMMAR_JSON_VALUE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/decimal.h"
#include "text/grammar/grammar_limits.h"

namespace strata {

struct JsonMember;

struct JsonValue {
  enum class Kind { kNull, kBoolean, kNumber, kString, kArray, kObject };

  static JsonValue Boolean(bool value);

  bool IsObject() const { return kind == Kind::kObject; }
  bool IsArray() const { return kind == Kind::kArray; }
  bool IsString() const { return kind == Kind::kString; }
  bool IsBoolean(bool value) const { return kind == Kind::kBoolean && boolean == value; }
  // The member of that name, or null. Of what is no object: null.
  const JsonValue* Find(std::string_view name) const;

  Kind kind = Kind::kNull;
  bool boolean = false;
  Decimal number;
  std::string text;
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// Whether both are the same value by JSON schema: 1 and 1.0 are, and members in another order.
bool SameJson(const JsonValue& a, const JsonValue& b);

// SCHEMA_INVALID for what is no JSON, for a name that an object has twice, and for what no exact
// number holds; SCHEMA_TOO_COMPLEX beyond the limits.
absl::StatusOr<JsonValue> ParseJsonValue(std::string_view text, const GrammarLimits& limits);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_JSON_VALUE_H_
