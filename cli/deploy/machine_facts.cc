#include "cli/deploy/machine_facts.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

constexpr size_t kShownFactBytes = 128;

absl::Status BadFacts(std::string_view what) {
  return Error(absl::StatusCode::kInternal, "BAD_FACTS", what)
      .Hint("try again; `ssh` to that machine has to give a POSIX shell");
}

// One «word value» line.
absl::Status ReadLine(std::string_view word, std::string_view value, MachineFacts* facts) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(value), ' ', absl::SkipEmpty());
  const auto part = [&](size_t i) { return i < parts.size() ? parts[i] : std::string(); };
  if (word == "system") {
    facts->system = std::string(value);
  } else if (word == "architecture") {
    facts->architecture = std::string(value);
  } else if (word == "root") {
    facts->root = value == "yes";
  } else if (word == "systemd") {
    facts->systemd = value == "yes";
  } else if (word == "package") {  // NAME VERSION DIGEST
    facts->packages[part(0)] = {.version = part(1), .sha256 = part(2)};
  } else if (word == "unit") {  // NAME ACTIVE ENABLED
    facts->units[part(0)] = {.active = part(1) == "active", .enabled = part(2) == "enabled"};
  } else if (word == "authority") {
    facts->authority_sha256 = part(0);
  } else if (word == "worker-ca") {
    facts->worker_ca_sha256 = part(0);
  } else if (word == "coordinator-config" || word == "worker-config") {
    std::string text;
    if (!absl::Base64Unescape(std::string(value), &text)) {
      return BadFacts(absl::StrCat("the ", std::string(word), " that it sent is no base64"));
    }
    (word == "worker-config" ? facts->worker_config : facts->coordinator_config) = std::move(text);
  } else if (word == "nodes") {
    std::string text;
    // None where the coordinator does not answer.
    if (absl::Base64Unescape(std::string(value), &text) && !text.empty()) {
      ASSIGN_OR_RETURN(facts->nodes, ParseNodeList(text));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string FactsScript() {
  return absl::StrReplaceAll(R"sh(set -u
word() { printf '%s %s\n' "$1" "$2"; }
word system "$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}")"
word architecture "$(dpkg --print-architecture 2>/dev/null)"
word root "$([ "$(id -u)" = 0 ] && echo yes || echo no)"
word systemd "$([ -d /run/systemd/system ] && echo yes || echo no)"
for package in strata-coordinator strata-worker strata-cli; do
  version=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$package" 2>/dev/null) || continue
  case $version in "installed "*) ;; *) continue ;; esac
  word package "$package ${version#installed } $(cat DEPLOYED/$package.sha256 2>/dev/null)"
done
for unit in strata-coordinator strata-worker; do
  word unit "$unit $(systemctl is-active $unit 2>/dev/null) $(systemctl is-enabled $unit 2>/dev/null)"
done
for service in coordinator worker; do
  [ ! -f CONFIG/$service.toml ] || word $service-config "$(base64 -w 0 CONFIG/$service.toml)"
done
authority=$(sed -n 's/^authority *= *"\(.*\)" *$/\1/p' CONFIG/coordinator.toml 2>/dev/null)
if [ -n "$authority" ] && [ -f "$authority/ca.pem" ]; then
  word nodes "$(strata --json node list 2>/dev/null | base64 -w 0)"
  word authority "$(sha256sum <"$authority/ca.pem")"
fi
[ ! -f CONFIG/worker-tls/ca.pem ] || word worker-ca "$(sha256sum <CONFIG/worker-tls/ca.pem)"
word done yes
)sh",
                             {{"CONFIG", kConfigDir}, {"DEPLOYED", kDeployedDir}});
}

absl::StatusOr<MachineFacts> ParseFacts(std::string_view text) {
  MachineFacts facts;
  bool done = false;
  const std::vector<std::string> lines = absl::StrSplit(std::string(text), '\n');
  for (const std::string& line : lines) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    done = done || parts.first == "done";
    RETURN_IF_ERROR(
        ReadLine(parts.first, std::string(absl::StripAsciiWhitespace(parts.second)), &facts));
  }
  return done ? absl::StatusOr<MachineFacts>(facts)
              : BadFacts(absl::StrCat("it did not tell what it has to the end; it said: ",
                                      Printable(text, kShownFactBytes)));
}

}  // namespace strata::deploy
