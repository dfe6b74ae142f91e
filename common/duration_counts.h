// How long things took, counted for a histogram.
#ifndef STRATA_COMMON_DURATION_COUNTS_H_
#define STRATA_COMMON_DURATION_COUNTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace strata {

// A plain value; one thread at a time.
struct DurationCounts {
  // From the smallest step to one that nearly times out, in seconds. Each belongs to its bucket.
  static constexpr std::array<double, 22> kBounds = {
      0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075,
      0.1,    0.15,   0.2,    0.3,   0.5,   0.75,  1,    2,    5,    10,   30};

  void Add(double seconds) {
    const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
    ++counts[static_cast<size_t>(bound - kBounds.begin())];
    ++total;
    sum_s += seconds;
  }

  std::array<uint64_t, kBounds.size() + 1> counts{};  // By bound; the last is beyond them all.
  uint64_t total = 0;
  double sum_s = 0;
};

}  // namespace strata

#endif  // STRATA_COMMON_DURATION_COUNTS_H_
