#include "common/units.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/charconv.h"
#include "common/status.h"

namespace strata {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr Unit kSizes[] = {{"B", 1},
                           {"KiB", 1024.0},
                           {"MiB", 1048576.0},
                           {"GiB", 1073741824.0},
                           {"TiB", 1099511627776.0},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"TB", 1e12}};
constexpr Unit kDurations[] = {{"ns", 1},     {"us", 1e3},    {"ms", 1e6},
                               {"s", 1e9},    {"m", 60e9},    {"min", 60e9},
                               {"h", 3600e9}, {"d", 86400e9}, {"days", 86400e9}};

// The number at the start of `text` and what follows it; false if there is none.
bool SplitNumber(std::string_view text, double* number, std::string_view* unit) {
  const char* end = text.data() + text.size();
  auto [rest, error] = absl::from_chars(text.data(), end, *number, absl::chars_format::fixed);
  if (error != std::errc() || *number < 0 || !std::isfinite(*number)) {
    return false;
  }
  *unit = std::string_view(rest, static_cast<size_t>(end - rest));
  while (!unit->empty() && unit->front() == ' ') {
    unit->remove_prefix(1);
  }
  return true;
}

std::string Scaled(double value, const char* unit) {
  char text[32];
  std::snprintf(text, sizeof(text), value < 10 ? "%.1f %s" : "%.0f %s", value, unit);
  return text;
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  double number = 0;
  std::string_view unit;
  if (SplitNumber(text, &number, &unit)) {
    for (const Unit& u : kSizes) {
      if (unit == u.name || (unit.empty() && u.scale == 1)) {
        const double bytes = number * u.scale;
        if (bytes < 9e18) {
          return static_cast<uint64_t>(bytes);
        }
      }
    }
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_SIZE",
               "'" + std::string(text) + "' is no size")
      .Hint("write it like 8GiB or 512MiB");
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  double number = 0;
  std::string_view unit;
  if (SplitNumber(text, &number, &unit)) {
    if (number == 0 && unit.empty()) {
      return std::chrono::nanoseconds(0);
    }
    for (const Unit& u : kDurations) {
      if (unit == u.name && number * u.scale < 9e18) {
        return std::chrono::nanoseconds(static_cast<int64_t>(number * u.scale));
      }
    }
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_DURATION",
               "'" + std::string(text) + "' is no duration")
      .Hint("write it like 500ms, 30s or 24h");
}

std::string FormatSize(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) {
    return std::to_string(bytes) + " B";
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return Scaled(value, kUnits[unit]);
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  const auto ns = static_cast<double>(duration.count());
  if (ns < 1e3) return Scaled(ns, "ns");
  if (ns < 1e6) return Scaled(ns / 1e3, "us");
  if (ns < 1e9) return Scaled(ns / 1e6, "ms");
  if (ns < 120e9) return Scaled(ns / 1e9, "s");
  if (ns < 120 * 60e9) return Scaled(ns / 60e9, "min");
  if (ns < 48 * 3600e9) return Scaled(ns / 3600e9, "h");
  return Scaled(ns / 86400e9, "days");
}

std::string FormatFloat(float value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end);
}

}  // namespace strata
