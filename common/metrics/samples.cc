#include "common/metrics/samples.h"

#include <limits>
#include <utility>

namespace strata {

using prometheus::ClientMetric;

ClientMetric CounterSample(MetricLabels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = value;
  return metric;
}

ClientMetric GaugeSample(MetricLabels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  return metric;
}

ClientMetric HistogramSample(MetricLabels labels, const DurationCounts& counts) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.histogram.sample_count = counts.total;
  metric.histogram.sample_sum = counts.sum_s;
  uint64_t up_to = 0;
  for (size_t i = 0; i < counts.counts.size(); ++i) {
    up_to += counts.counts[i];
    const double bound = i < DurationCounts::kBounds.size()
                             ? DurationCounts::kBounds[i]
                             : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({up_to, bound});
  }
  return metric;
}

}  // namespace strata
