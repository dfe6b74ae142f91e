// What `strata top` shows: one picture of the cluster, and how fast its tokens come.
#ifndef STRATA_CLI_TOP_H_
#define STRATA_CLI_TOP_H_

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "cli/cli.h"
#include "cli/output.h"

namespace strata::v1 {
class GetStatusResponse;
class StageUse;
}  // namespace strata::v1

namespace strata::cli {

// Of one stage, between two pictures; shares of time.
struct StageRate {
  double busy = 0;    // Computing.
  double bubble = 0;  // Without computing, though steps were under way.
  double rows_per_s = 0;
};

// Tokens a second, and what stages do, from the counts of two pictures.
class TokenRates {
 public:
  // Takes the newest picture.
  void Update(const v1::GetStatusResponse& status, std::chrono::steady_clock::time_point now);

  // Of one request, sent with the API key of that id. nullopt: the picture before does not have it.
  std::optional<double> Of(const std::string& request_id, const std::string& key = "") const;
  // nullopt: the picture before does not have it, or it was loaded since.
  std::optional<StageRate> Of(const v1::StageUse& stage) const;
  // Of all that are in flight; what requests generated that have ended since is not counted.
  // nullopt: there is no picture before.
  std::optional<double> total() const { return total_; }

 private:
  void UpdateStages(const v1::GetStatusResponse& status, double seconds);

  std::map<std::string, uint32_t> generated_;  // By key and request id.
  std::map<std::string, double> rates_;
  // By model and stage: what was counted (compute_s, bubble_s, rows), and rates.
  using Stage = std::pair<std::string, uint32_t>;
  std::map<Stage, StageRate> counted_;
  std::map<Stage, StageRate> stage_rates_;
  std::optional<double> total_;
  std::optional<std::chrono::steady_clock::time_point> at_;
};

// `status` with what nodes use and hold, and with rates: "tokens_per_s" of all and of each request,
// and "busy_share", "bubble_share" and "rows_per_s" of each stage; null where it is not known yet.
Json TopDocument(const v1::GetStatusResponse& status, const TokenRates& rates);

// For people; `coordinator` is its address.
void PrintTop(const v1::GetStatusResponse& status, const TokenRates& rates,
              const std::string& coordinator, std::ostream* out);

// `text` as what a terminal of that size shows from its upper left corner on: longer lines and
// what does not fit below are cut, the latter with a line that says so.
std::string Screen(const std::string& text, TerminalSize size);

}  // namespace strata::cli

#endif  // STRATA_CLI_TOP_H_
