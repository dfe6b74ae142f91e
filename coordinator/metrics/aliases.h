// The names that dashboards made for other engines ask for.
#ifndef STRATA_COORDINATOR_METRICS_ALIASES_H_
#define STRATA_COORDINATOR_METRICS_ALIASES_H_

#include <prometheus/metric_family.h>

#include <vector>

namespace strata {

// Copies of `families` under the names vllm:*, with the label model_name for model. Of the reasons
// that requests end with, those that such dashboards know: "cancelled" is "abort", and requests
// that failed or were refused are left out.
std::vector<prometheus::MetricFamily> AliasesOf(
    const std::vector<prometheus::MetricFamily>& families);

}  // namespace strata

#endif  // STRATA_COORDINATOR_METRICS_ALIASES_H_
