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
