// What a load is made of: how long each request is, what it asks, when it comes. Everything is a
// pure function of the options and the request's number, so that a seed names a load.
#ifndef STRATA_CLI_BENCH_WORKLOAD_H_
#define STRATA_CLI_BENCH_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"

namespace strata::cli {

// Lengths in tokens: always the same, uniform, or log-normal.
class LengthDistribution {
 public:
  // "128"; "1-1500", uniform; "lognormal:MEDIAN,SIGMA,MAX", where SIGMA is the standard deviation
  // of the logarithm and longer ones are cut to MAX. INVALID_ARGUMENT names the forms.
  static absl::StatusOr<LengthDistribution> Parse(std::string_view text);
  static LengthDistribution Always(uint32_t tokens);

  // From two words of random bits.
  uint32_t Draw(uint64_t bits, uint64_t more_bits) const;
  bool constant() const { return sigma_ == 0 && min_ == max_; }
  uint32_t max() const { return max_; }

 private:
  LengthDistribution(uint32_t min, uint32_t max, double median, double sigma)
      : min_(min), max_(max), median_(median), sigma_(sigma) {}
  uint32_t min_;
  uint32_t max_;
  double median_;
  double sigma_;  // 0: uniform.
};

struct LengthPair {
  uint32_t prompt_tokens = 0;
  uint32_t answer_tokens = 0;
};
// Lines of "PROMPT,ANSWER" in tokens; empty ones and those that begin with '#' are skipped.
// INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<LengthPair>> ParseLengths(std::string_view text);

struct WorkloadOptions {
  LengthDistribution prompt = LengthDistribution::Always(1);
  LengthDistribution answer = LengthDistribution::Always(1);
  std::vector<LengthPair> lengths;  // Taken in turn instead of those two, when not empty.
  // Tokens in front of each prompt, beside its own. Requests take the groups in turn; those of one
  // group begin with the same tokens.
  uint32_t shared_prefix = 0;
  uint32_t prefix_groups = 1;
  uint32_t vocab_size = 1;  // Ids are below.
  uint32_t distinct = 0;    // Requests repeat after so many; 0: never.
  double rate = 0;          // Arrivals a second, a Poisson process; 0: none of their own.
  uint64_t seed = 1;
};

struct WorkloadRequest {
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 0;
};

class Workload {
 public:
  explicit Workload(WorkloadOptions options) : options_(std::move(options)) {}
  const WorkloadOptions& options() const { return options_; }

  LengthPair Lengths(uint32_t request) const;  // Of the request's own tokens, without the prefix.
  WorkloadRequest Make(uint32_t request) const;
  // From the arrival of the request before (or the begin of the load). `rate` is not 0.
  nanoseconds ArrivalGap(uint32_t request) const;

 private:
  // The one that it is, or repeats.
  uint32_t Which(uint32_t request) const;

  const WorkloadOptions options_;
};

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_WORKLOAD_H_
