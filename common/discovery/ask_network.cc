#include "common/discovery/ask_network.h"

#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/platform/addresses.h"
#include "common/platform/run_program.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr int kTimes = 3;
// It ends by itself after one: avahi-daemon gives up a name that does not resolve after five.
constexpr std::chrono::milliseconds kTimeout{20'000};
constexpr size_t kShownWordsBytes = 200;

absl::StatusOr<std::vector<FoundCoordinator>> AskOnce() {
  const auto ran = RunProgram({"avahi-browse", "--resolve", "--parsable", "--terminate",
                               "--no-db-lookup", kCoordinatorService},
                              {.timeout = kTimeout});
  if (!ran.ok()) {
    return absl::IsNotFound(ran.status())
               ? Error(absl::StatusCode::kNotFound, "PROGRAM_MISSING",
                       "there is no avahi-browse, which asks the network")
                     .Hint("install avahi-utils, or leave --discover out")
               : ran.status();
  }
  if (ran->exit_status != 0) {
    const std::string why(absl::StripAsciiWhitespace(ran->error));
    return Error(absl::StatusCode::kUnavailable, "NO_AVAHI",
                 absl::StrCat("avahi-browse cannot ask: ", Printable(why, kShownWordsBytes)))
        .Hint("start avahi-daemon, or leave --discover out");
  }
  return ReadFoundCoordinators(ran->out);
}

}  // namespace

absl::StatusOr<std::vector<FoundCoordinator>> AskNetworkFor(
    std::string_view authority_sha256, const std::function<void(const std::string&)>& say) {
  const std::vector<std::string> interfaces = MulticastInterfaces();
  const std::string where = interfaces.empty() ? "no interface, since none takes multicast"
                                               : absl::StrJoin(interfaces, ", ");
  say(absl::StrCat("asking for coordinators on ", where, ", by avahi-daemon\n"));
  std::vector<FoundCoordinator> found;
  std::vector<FoundCoordinator> wanted;
  for (int i = 0; i < kTimes && wanted.empty(); ++i) {
    ASSIGN_OR_RETURN(found, AskOnce());
    wanted = CoordinatorsOf(found, authority_sha256);
  }
  say(found.empty() ? "  nobody answered\n" : DescribeFound(found, authority_sha256));
  if (!wanted.empty()) {
    return wanted;
  }
  if (found.empty()) {
    return Error(absl::StatusCode::kNotFound, "NO_COORDINATOR_ANSWERED",
                 absl::StrCat("no coordinator answered on ", where))
        .Hint(
            "start it with --announce, on the same network; let UDP port 5353 through firewalls; "
            "or leave --discover out, so that the token's address is taken");
  }
  return Error(absl::StatusCode::kNotFound, "OTHER_COORDINATORS_ANSWERED",
               absl::StrCat(found.size(), found.size() == 1 ? " answer" : " answers",
                            ", none of the token's authority"))
      .Hint(
          "start the coordinator that made the token with --announce, or have the one that "
          "answered make a token (`strata node token`)");
}

}  // namespace strata
