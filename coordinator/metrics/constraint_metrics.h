// What constraints cost: compiles, masks, and what is kept.
#ifndef STRATA_COORDINATOR_METRICS_CONSTRAINT_METRICS_H_
#define STRATA_COORDINATOR_METRICS_CONSTRAINT_METRICS_H_

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace strata {

// Any thread.
class ConstraintMetrics {
 public:
  ConstraintMetrics();
  ConstraintMetrics(const ConstraintMetrics&) = delete;
  ConstraintMetrics& operator=(const ConstraintMetrics&) = delete;

  // A constraint was read and compiled, or refused, which took so long.
  void OnCompiled(const absl::Status& status, nanoseconds took);
  // Compiled grammars that are kept from now on, and their bytes.
  void OnKept(size_t grammars, size_t bytes);
  // A mask took so much of a processor.
  void OnMask(nanoseconds took);

  std::vector<prometheus::MetricFamily> Families() const;

 private:
  prometheus::Histogram compile_;
  prometheus::Histogram mask_;
  mutable Mutex mutex_;
  uint64_t compiled_ STRATA_GUARDED_BY(mutex_) = 0;
  // By reason, of which there are as many as the code has words. Those that operators may want to
  // hear of are there from the beginning.
  std::map<std::string, uint64_t> failed_ STRATA_GUARDED_BY(mutex_) = {{"GRAMMAR_TOO_EXPENSIVE", 0},
                                                                       {"SCHEMA_UNSUPPORTED", 0}};
  size_t kept_grammars_ STRATA_GUARDED_BY(mutex_) = 0;
  size_t kept_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_METRICS_CONSTRAINT_METRICS_H_
