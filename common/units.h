// Sizes and durations as people write them: "8GiB", "512MiB", "500ms", "30s", "5m".
#ifndef STRATA_COMMON_UNITS_H_
#define STRATA_COMMON_UNITS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace strata {

// Bytes from "8GiB", "1.5GiB", "100MB", "4096" (bytes). Units B, KiB, MiB, GiB, TiB, KB, MB, GB,
// TB. INVALID_ARGUMENT names the text and the accepted forms.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);

// From "500ms", "30s", "5m", "1h", "200us". A bare "0" is accepted.
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// "7.4 GiB", for people.
std::string FormatSize(uint64_t bytes);
// "1.2 s", "340 ms", for people.
std::string FormatDuration(std::chrono::nanoseconds duration);
// The shortest decimal that reads back to the same float32; "null" if not finite.
std::string FormatFloat(float value);

}  // namespace strata

#endif  // STRATA_COMMON_UNITS_H_
