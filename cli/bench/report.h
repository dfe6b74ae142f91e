// What a load showed.
#ifndef STRATA_CLI_BENCH_REPORT_H_
#define STRATA_CLI_BENCH_REPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/bench/target.h"
#include "common/clock.h"

namespace strata::cli {

struct Percentiles {
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
};

// The value below or at which `share` of the values lie (nearest rank); 0 of none. Sorts.
double Percentile(std::vector<double>* values, double share);
Percentiles PercentilesOf(std::vector<double> values);

// What a request has to keep to count as good: its first token, and the mean time between its
// tokens. Unset: any.
struct LatencyTargets {
  std::optional<double> ttft_ms;
  std::optional<double> inter_token_ms;
  bool any() const { return ttft_ms.has_value() || inter_token_ms.has_value(); }
};

struct Failures {
  uint32_t count = 0;
  absl::Status first;
};

struct LoadReport {
  uint32_t requests = 0;  // Begun.
  uint32_t failed = 0;    // Of those, refused ones included.
  uint32_t refused = 0;
  std::map<std::string, Failures> failures;  // By reason.
  absl::Status first_error;
  double wall_s = 0;  // From the begin to the last answer.
  // The rest is of answered requests. Rates are over the whole time.
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t cached_tokens = 0;
  double requests_per_s = 0;
  double prompt_tokens_per_s = 0;
  double generated_tokens_per_s = 0;
  Percentiles ttft_ms;         // From when the request was due to its first token.
  Percentiles inter_token_ms;  // Between tokens; tokens that came together share their gap.
  Percentiles request_ms;      // From when it was due to its end.
  Percentiles late_ms;         // From when it was due until it was sent: of all begun.
  uint32_t good = 0;           // Those that kept the targets.
  double good_requests_per_s = 0;
  std::string numerics_class;
};

// Told of each request at its end, with all of its text.
using OnAnswer = std::function<void(uint32_t request, std::string_view text, const RequestEnd&)>;

// Takes in what happens; one thread.
class LoadRecorder : public LoadObserver {
 public:
  // `on_answer` may be empty; no text is kept then.
  LoadRecorder(TimePoint begin, LatencyTargets targets, OnAnswer on_answer = {})
      : begin_(begin), targets_(targets), on_answer_(std::move(on_answer)) {}

  // The request is sent at `now`, and was due at `due`, which is not later.
  void OnBegin(uint32_t request, TimePoint due, TimePoint now);
  void OnTokens(uint32_t request, TimePoint at, uint32_t tokens) override;
  void OnText(uint32_t request, std::string_view text) override;
  void OnEnd(uint32_t request, TimePoint at, const RequestEnd& end) override;

  uint32_t begun() const { return report_.requests; }
  uint32_t ended() const { return ended_; }
  uint32_t failed() const { return report_.failed; }
  uint64_t tokens_seen() const { return tokens_seen_; }
  LoadReport Report() const;

 private:
  struct Running {
    TimePoint due{};
    TimePoint first{};
    TimePoint last{};
    uint32_t tokens = 0;
    std::vector<double> gaps_ms;
    std::string text;
  };
  void TakeFailure(const RequestEnd& end);
  void TakeAnswer(Running running, TimePoint at, const RequestEnd& end);

  const TimePoint begin_;
  const LatencyTargets targets_;
  const OnAnswer on_answer_;
  TimePoint last_end_{};
  uint32_t ended_ = 0;
  uint64_t tokens_seen_ = 0;
  std::map<uint32_t, Running> running_;
  std::vector<double> ttft_ms_;
  std::vector<double> gaps_ms_;
  std::vector<double> request_ms_;
  std::vector<double> late_ms_;
  LoadReport report_;  // Counts; what follows from them is made by Report().
};

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_REPORT_H_
