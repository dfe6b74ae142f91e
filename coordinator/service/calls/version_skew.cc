#include "coordinator/service/calls/version_skew.h"

#include <charconv>
#include <cstdint>
#include <optional>

#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kShownBytes = 32;

struct Release {
  uint32_t major = 0;
  uint32_t minor = 0;
};

// MAJOR.MINOR, and whatever follows a further '.', '-' or '+'.
std::optional<Release> Parse(std::string_view version) {
  Release release;
  const char* const end = version.data() + version.size();
  const auto major = std::from_chars(version.data(), end, release.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') {
    return std::nullopt;
  }
  const auto minor = std::from_chars(major.ptr + 1, end, release.minor);
  constexpr std::string_view kBehind = ".-+";
  if (minor.ec != std::errc() || (minor.ptr != end && kBehind.find(*minor.ptr) == kBehind.npos)) {
    return std::nullopt;
  }
  return release;
}

}  // namespace

absl::Status CheckVersionSkew(std::string_view own, std::string_view theirs,
                              const std::string& node) {
  const auto ours = Parse(own);
  const auto others = Parse(theirs);
  if (!ours.has_value() || !others.has_value()) {
    return absl::OkStatus();
  }
  const uint32_t apart =
      ours->minor > others->minor ? ours->minor - others->minor : others->minor - ours->minor;
  if (ours->major == others->major && apart <= 1) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition, "VERSION_SKEW",
               "the worker " + node + " is of version " + Printable(theirs, kShownBytes) +
                   ", and the coordinator of " + std::string(own))
      .Node(node)
      .Limit("minor_versions_apart=1")
      .Hint(
          "install packages of the coordinator's version there; an upgrade goes through each minor "
          "version in turn");
}

}  // namespace strata
