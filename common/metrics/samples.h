// Values as Prometheus' families hold them, for what is read at a scrape.
#ifndef STRATA_COMMON_METRICS_SAMPLES_H_
#define STRATA_COMMON_METRICS_SAMPLES_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "common/clock.h"
#include "common/duration_counts.h"

namespace strata {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

prometheus::ClientMetric CounterSample(MetricLabels labels, double value);
prometheus::ClientMetric GaugeSample(MetricLabels labels, double value);
prometheus::ClientMetric HistogramSample(MetricLabels labels, const DurationCounts& counts);

inline double ToSeconds(nanoseconds time) { return static_cast<double>(time.count()) / 1e9; }

}  // namespace strata

#endif  // STRATA_COMMON_METRICS_SAMPLES_H_
