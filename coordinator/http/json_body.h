// Reading a request's JSON: bounded, and every error names the field. For .cc files and the other
// headers of the translation only: it brings nlohmann/json.
#ifndef STRATA_COORDINATOR_HTTP_JSON_BODY_H_
#define STRATA_COORDINATOR_HTTP_JSON_BODY_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 64;

// The object that a body is. INVALID_ARGUMENT (BAD_JSON) says what it is instead, and where.
absl::StatusOr<Json> ParseBody(std::string_view body);
// Any JSON; errors call it `what`, as in "the body".
absl::StatusOr<Json> ParseJson(std::string_view text, const std::string& what);

// On one line; what is no UTF-8 is replaced.
std::string Dump(const OrderedJson& json);

// A float as the shortest decimal that reads back to it.
double ShortestDouble(float value);
// What is too large for a float32 becomes infinite, and is refused as such where it is checked.
float NearestFloat(double value);

// INVALID_ARGUMENT (BAD_FIELD): "`field` must be `wanted`". The fact "field" names it.
absl::Status BadField(std::string_view field, std::string_view wanted);
// INVALID_ARGUMENT (NOT_SUPPORTED): "`field` is not supported" and `what` instead.
absl::Status NotSupported(std::string_view field, std::string_view what = "");

// The field that an error is about, or "".
std::string FieldOf(const absl::Status& status);

// Reads fields of an object. What is absent or null has no value; after the first error, which
// status() keeps, nothing has.
class Fields {
 public:
  // `object` outlives it; `prefix` stands before names in errors, as in "stream_options.".
  explicit Fields(const Json& object, std::string prefix = "")
      : object_(&object), prefix_(std::move(prefix)) {}

  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // Null if it is absent or null.
  const Json* Find(const char* name) const;
  std::optional<bool> Bool(const char* name);
  bool BoolOr(const char* name, bool otherwise) { return Bool(name).value_or(otherwise); }
  std::optional<float> Float(const char* name);
  // A whole number in [least, most]; 16.0 is one.
  std::optional<int64_t> Int(const char* name, int64_t least = 0,
                             int64_t most = std::numeric_limits<int64_t>::max());
  std::optional<std::string> Text(const char* name);
  // One string, or an array of them.
  std::vector<std::string> Texts(const char* name);
  // An object.
  const Json* Object(const char* name);

  // NOT_SUPPORTED unless it is absent, null, false, an empty string, array or object, or `allowed`.
  void Refuse(const char* name, const Json& allowed = nullptr);

  std::string Name(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  const Json* const object_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_JSON_BODY_H_
