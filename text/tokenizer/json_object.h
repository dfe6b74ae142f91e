// Reading objects of a tokenizer.json: every field is checked, and an error says which one it is.
// For .cc files only: it brings nlohmann/json.
#ifndef STRATA_TEXT_TOKENIZER_JSON_OBJECT_H_
#define STRATA_TEXT_TOKENIZER_JSON_OBJECT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {

using Json = nlohmann::json;

inline absl::Status TokenizerInvalid(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID", what);
}

// `normalizer "BertNormalizer" is not supported yet`.
inline absl::Status TokenizerUnsupported(std::string_view what) {
  return Error(absl::StatusCode::kUnimplemented, "TOKENIZER_UNSUPPORTED",
               std::string(what) + " is not supported yet");
}

inline absl::Status TokenizerUnsupported(std::string_view kind, std::string_view type) {
  return TokenizerUnsupported(absl::StrCat(std::string(kind), " \"", std::string(type), "\""));
}

// Any JSON document; `what` says what it is in errors.
inline absl::StatusOr<Json> ParseJsonText(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {  // Its text quotes bytes, which may be no UTF-8.
    return TokenizerInvalid(
        absl::StrCat(std::string(what), " is no JSON in UTF-8 at byte ", error.byte));
  } catch (const Json::exception& error) {
    return TokenizerInvalid(absl::StrCat(std::string(what), " is no JSON: a number is too large"));
  }
}

// An object and what it is called in errors. The value outlives it.
class JsonObject {
 public:
  static absl::StatusOr<JsonObject> Of(const Json& value, std::string where) {
    if (!value.is_object()) {
      return TokenizerInvalid(absl::StrCat(where, " is no object"));
    }
    return JsonObject(value, std::move(where));
  }

  const std::string& where() const { return where_; }
  // Null if it is absent or null.
  const Json* Find(const char* name) const {
    const auto found = value_->find(name);
    return found == value_->end() || found->is_null() ? nullptr : &*found;
  }
  absl::StatusOr<std::string> String(const char* name) const {
    const Json* field = Find(name);
    if (field == nullptr || !field->is_string()) {
      return Wrong(name, "a string");
    }
    return field->get<std::string>();
  }
  absl::StatusOr<bool> Bool(const char* name, bool otherwise) const {
    const Json* field = Find(name);
    if (field == nullptr) {
      return otherwise;
    }
    if (!field->is_boolean()) {
      return Wrong(name, "true or false");
    }
    return field->get<bool>();
  }
  // Exactly one character.
  absl::StatusOr<std::string> Character(const char* name) const {
    ASSIGN_OR_RETURN(std::string text, String(name));
    size_t end = 0;
    if (text.empty() || (NextChar(text, &end), end != text.size())) {
      return Wrong(name, "one character");
    }
    return text;
  }
  // A count from 0 to `most`.
  absl::StatusOr<size_t> Count(const char* name, size_t otherwise, size_t most) const {
    const Json* field = Find(name);
    if (field == nullptr) {
      return otherwise;
    }
    if (!field->is_number_integer() ||
        (!field->is_number_unsigned() && field->get<int64_t>() < 0) ||
        field->get<uint64_t>() > most) {
      return Wrong(name, "a number in range");
    }
    return field->get<size_t>();
  }
  absl::StatusOr<const Json*> Array(const char* name) const {
    const Json* field = Find(name);
    if (field == nullptr || !field->is_array()) {
      return Wrong(name, "an array");
    }
    return field;
  }
  absl::Status Wrong(const char* name, const char* wanted) const {
    return TokenizerInvalid(absl::StrCat(where_, ": ", name, " is not ", wanted));
  }

 private:
  JsonObject(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const Json* value_;
  std::string where_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_JSON_OBJECT_H_
