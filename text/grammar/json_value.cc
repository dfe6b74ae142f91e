#include "text/grammar/json_value.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

// Builds a value from what nlohmann's parser reads.
class ValueReader {
 public:
  ValueReader(const GrammarLimits& limits, JsonValue* root) : limits_(limits), root_(root) {}

  absl::Status status() const { return status_; }

  // What the parser calls. NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Add(JsonValue()) != nullptr; }
  bool boolean(bool value) { return Add(JsonValue::Boolean(value)) != nullptr; }
  bool number_integer(int64_t value) { return Number(std::to_string(value)); }
  bool number_unsigned(uint64_t value) { return Number(std::to_string(value)); }
  bool number_float(double /*value*/, const std::string& text) { return Number(text); }
  bool string(std::string& text) {
    JsonValue value;
    value.kind = JsonValue::Kind::kString;
    value.text = std::move(text);
    return Add(std::move(value)) != nullptr;
  }
  bool binary(std::vector<uint8_t>& /*bytes*/) { return false; }
  bool start_object(size_t /*members*/) { return Open(JsonValue::Kind::kObject); }
  bool start_array(size_t /*items*/) { return Open(JsonValue::Kind::kArray); }
  bool key(std::string& name) {
    open_.back()->members.push_back({std::move(name), JsonValue()});
    return true;
  }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(size_t position, const std::string& /*token*/, const std::exception& /*error*/) {
    status_ = SchemaInvalid("", "is no JSON from byte " + std::to_string(position) + " on");
    return false;
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  bool Number(std::string_view text) {
    std::optional<Decimal> number = Decimal::Parse(text);
    if (!number) {
      status_ = SchemaInvalid("", "has a number with an exponent beyond a million");
      return false;
    }
    JsonValue value;
    value.kind = JsonValue::Kind::kNumber;
    value.number = *std::move(number);
    return Add(std::move(value)) != nullptr;
  }

  bool Open(JsonValue::Kind kind) {
    if (open_.size() >= limits_.max_depth) {
      status_ = SchemaTooComplex("values within values", limits_.max_depth);
      return false;
    }
    JsonValue value;
    value.kind = kind;
    JsonValue* const added = Add(std::move(value));
    if (added != nullptr) {
      open_.push_back(added);
    }
    return added != nullptr;
  }

  bool Close() {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : open_.back()->members) {
      names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
      status_ = SchemaInvalid("", "has the name " + QuotedText(*twice) + " twice in one object");
      return false;
    }
    open_.pop_back();
    return true;
  }

  JsonValue* Add(JsonValue value) {
    if (++nodes_ > limits_.max_nodes) {
      status_ = SchemaTooComplex("values", limits_.max_nodes);
      return nullptr;
    }
    if (open_.empty()) {
      *root_ = std::move(value);
      return root_;
    }
    JsonValue* const parent = open_.back();
    if (parent->IsObject()) {
      parent->members.back().value = std::move(value);
      return &parent->members.back().value;
    }
    parent->items.push_back(std::move(value));
    return &parent->items.back();
  }

  const GrammarLimits& limits_;
  JsonValue* const root_;
  // From the root to what is read; none of them moves while it is here, as only the last grows.
  std::vector<JsonValue*> open_;
  size_t nodes_ = 0;
  absl::Status status_;
};

}  // namespace

JsonValue JsonValue::Boolean(bool value) {
  JsonValue result;
  result.kind = Kind::kBoolean;
  result.boolean = value;
  return result;
}

const JsonValue* JsonValue::Find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

bool SameJson(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind || a.boolean != b.boolean || a.number != b.number || a.text != b.text ||
      a.items.size() != b.items.size() || a.members.size() != b.members.size()) {
    return false;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!SameJson(a.items[i], b.items[i])) {
      return false;
    }
  }
  for (const auto& [name, value] : a.members) {
    const JsonValue* const other = b.Find(name);
    if (other == nullptr || !SameJson(value, *other)) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<JsonValue> ParseJsonValue(std::string_view text, const GrammarLimits& limits) {
  if (text.size() > limits.max_source_bytes) {
    return SchemaTooComplex("bytes", limits.max_source_bytes);
  }
  JsonValue root;
  ValueReader reader(limits, &root);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
    return reader.status().ok() ? SchemaInvalid("", "is no JSON") : reader.status();
  }
  return root;
}

}  // namespace strata
