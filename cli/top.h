// What `strata top` shows: one picture of the cluster, and how fast its tokens come.
#ifndef STRATA_CLI_TOP_H_
#define STRATA_CLI_TOP_H_

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>

#include "cli/cli.h"
#include "cli/output.h"

namespace strata::v1 {
class GetStatusResponse;
}

namespace strata::cli {

// Tokens a second, from the counts of two pictures.
class TokenRates {
 public:
  // Takes the newest picture.
  void Update(const v1::GetStatusResponse& status, std::chrono::steady_clock::time_point now);

  // Of one request. nullopt: the picture before does not have it.
  std::optional<double> Of(const std::string& request_id) const;
  // Of all that are in flight; what requests generated that have ended since is not counted.
  // nullopt: there is no picture before.
  std::optional<double> total() const { return total_; }

 private:
  std::map<std::string, uint32_t> generated_;  // By request id.
  std::map<std::string, double> rates_;
  std::optional<double> total_;
  std::optional<std::chrono::steady_clock::time_point> at_;
};

// `status` with what nodes use and hold, and with rates: "tokens_per_s" of all and of each request,
// null where it is not known yet.
Json TopDocument(const v1::GetStatusResponse& status, const TokenRates& rates);

// For people; `coordinator` is its address.
void PrintTop(const v1::GetStatusResponse& status, const TokenRates& rates,
              const std::string& coordinator, std::ostream* out);

// `text` as what a terminal of that size shows from its upper left corner on: longer lines and
// what does not fit below are cut, the latter with a line that says so.
std::string Screen(const std::string& text, TerminalSize size);

}  // namespace strata::cli

#endif  // STRATA_CLI_TOP_H_
