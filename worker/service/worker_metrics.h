// What a worker counts and measures, for Prometheus (docs/OPERATIONS.md, "Metrics of a worker").
#ifndef STRATA_WORKER_SERVICE_WORKER_METRICS_H_
#define STRATA_WORKER_SERVICE_WORKER_METRICS_H_

#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/service/worker_report.h"

namespace strata {

// Pure. Labels of stages are bounded by what is loaded: model, stage, node, KV group, state.
std::vector<prometheus::MetricFamily> WorkerFamilies(const WorkerReport& report);

// The same in Prometheus' text format.
std::string MetricsText(const WorkerReport& report);

// Serves GET /metrics on threads of its own.
class MetricsServer {
 public:
  // Listens on "host:port"; port 0 picks one. `report` is asked at each scrape, from any thread,
  // until this is destroyed. INVALID_ARGUMENT for an address that is none, UNAVAILABLE for one
  // that cannot be had.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              std::function<WorkerReport()> report);
  virtual ~MetricsServer() = default;
  virtual std::string address() const = 0;  // As bound.
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_WORKER_METRICS_H_
