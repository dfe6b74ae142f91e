// Reading JSON that came with a checkpoint: nothing in it is believed, and no exception leaves.
// Internal to the readers of checkpoint files; heavy header, include it in .cc files only.
#ifndef STRATA_COMMON_CHECKPOINT_JSON_READER_H_
#define STRATA_COMMON_CHECKPOINT_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

inline constexpr size_t kMaxConfigBytes = size_t{16} << 20;
inline constexpr int kMaxJsonDepth = 64;

// The object in `text`. INVALID_ARGUMENT with `reason` where it is longer than `max_bytes`, is not
// JSON, is not an object, nests deeper than kMaxJsonDepth or names a key twice. `what` begins the
// message.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view what,
                                               std::string_view reason, size_t max_bytes);

// A name out of a file as it may stand in a message: quoted, escaped, at most 100 characters.
std::string Quoted(std::string_view name);
// A value likewise, as JSON.
std::string QuotedValue(const nlohmann::json& value);

// Reads typed fields of an object and keeps the first error, which names the field. null counts as
// absent. After an error every read gives its fallback.
class FieldReader {
 public:
  // `object` has to outlive the reader. `prefix` is put before field names in messages: "" or,
  // say, "rope_scaling.".
  FieldReader(const nlohmann::json* object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  // The value, or nullptr where it is absent or null.
  const nlohmann::json* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Of the names that a field has been written by, the one that it has here; the first where it has
  // none. An error where it has several with different values.
  const char* NameOf(std::span<const char* const> names);

  // An integer in [min, max]; required unless there is a fallback, which is not checked.
  uint64_t Uint(std::string_view name, uint64_t min, uint64_t max,
                std::optional<uint64_t> fallback = std::nullopt);
  // A number in [min, max]; {"__float__": "Infinity"}, which transformers 5 writes for what JSON
  // has no number for, is in it where max is infinite.
  double Number(std::string_view name, double min, double max,
                std::optional<double> fallback = std::nullopt);
  bool Bool(std::string_view name, bool fallback);
  std::string String(std::string_view name, std::string_view fallback);

  // Records an error about a field unless there is one already: "`name` `problem`".
  void Fail(std::string_view name, std::string_view problem);
  void Fail(absl::Status status);
  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json* const object_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_JSON_READER_H_
