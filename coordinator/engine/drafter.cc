#include "coordinator/engine/drafter.h"

#include <string>

#include "common/status.h"
#include "coordinator/engine/lookup_drafter.h"

namespace strata {

absl::StatusOr<Speculate> ParseSpeculate(std::string_view text, Speculate unsaid) {
  if (text.empty()) {
    return unsaid;
  }
  if (text == "off") {
    return Speculate::kOff;
  }
  if (text == "lookup") {
    return Speculate::kLookup;
  }
  if (text == "auto") {
    return Speculate::kAuto;
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_SPECULATE",
               "there is no speculate \"" + std::string(text.substr(0, 64)) + "\"")
      .Limit("speculate=auto|off|lookup")
      .Fact("field", "speculate")
      .Hint("say auto, off or lookup");
}

absl::StatusOr<LoadSpeculate> ParseLoadSpeculate(std::string_view text) {
  constexpr std::string_view kModel = "model=";
  if (text.substr(0, kModel.size()) == kModel && text.size() > kModel.size()) {
    return LoadSpeculate{Speculate::kAuto, std::string(text.substr(kModel.size()))};
  }
  const absl::StatusOr<Speculate> by = ParseSpeculate(text, Speculate::kOff);
  if (!by.ok()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_SPECULATE",
                 "there is no speculate \"" + std::string(text.substr(0, 64)) + "\"")
        .Limit("speculate=auto|off|lookup|model=NAME")
        .Fact("field", "speculate")
        .Hint("say auto, off, lookup, or model= and the name of a smaller model");
  }
  return LoadSpeculate{*by, ""};
}

std::string_view DraftSourceName(DraftSource source) {
  switch (source) {
    case DraftSource::kRequest:
      return "request";
    case DraftSource::kRecentAnswer:
      return "recent";
    case DraftSource::kConstraint:
      return "constraint";
    case DraftSource::kModel:
      return "model";
  }
  return "";
}

std::unique_ptr<Drafter> NewDrafter(Speculate speculate, uint32_t most_tokens) {
  switch (speculate) {
    case Speculate::kOff:
      break;
    case Speculate::kLookup:
    case Speculate::kAuto:
      return std::make_unique<LookupDrafter>(most_tokens);
  }
  return nullptr;
}

}  // namespace strata
