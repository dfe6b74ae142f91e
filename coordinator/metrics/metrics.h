// What the coordinator counts and measures, for Prometheus (docs/OPERATIONS.md, "Metrics").
#ifndef STRATA_COORDINATOR_METRICS_METRICS_H_
#define STRATA_COORDINATOR_METRICS_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/engine/session.h"
#include "coordinator/metrics/constraint_metrics.h"
#include "coordinator/metrics/model_families.h"

namespace strata {

// Content-Type of Metrics::Text.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

struct RequestSeries;

// When what a listener shows ends: its certificate, or an authority that this hangs on.
struct CertificateEnd {
  std::string listener;  // "grpc", "http".
  int64_t at_s = 0;      // Since 1970.
};

// Any thread. The only label of requests is their model (and how they ended), so that there are as
// many series as models.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The text that Prometheus scrapes: own names, then their aliases. The models in `models` are
  // there from the first scrape on, with zeros. `weights_sent_bytes`: to workers, since the start.
  // `certificates`: of the listeners that have TLS.
  std::string Text(const std::vector<ModelSnapshot>& models, uint64_t weights_sent_bytes = 0,
                   const std::vector<CertificateEnd>& certificates = {});

  ConstraintMetrics* constraints() { return &constraints_; }

  // Forgets every other model: its series are gone.
  void KeepOnly(const std::set<std::string>& models);

 private:
  friend class RequestMetrics;
  std::shared_ptr<RequestSeries> SeriesOf(const std::string& model);

  ConstraintMetrics constraints_;
  Mutex mutex_;
  // By model. Requests in flight keep those of a model that was forgotten.
  std::map<std::string, std::shared_ptr<RequestSeries>> series_ STRATA_GUARDED_BY(mutex_);
};

// When a request passed each stop on its way to the decision whether it runs, waits or is refused.
// One that it did not reach is 0.
struct AdmissionTimes {
  TimePoint arrived{0};   // Its last byte.
  TimePoint taken{0};     // By a thread for texts.
  TimePoint prepared{0};  // Read and tokenized: on to the event loop.
  TimePoint on_loop{0};   // Which has begun with it.
};

// Observes one request of a model that is known: exactly one of OnDone, OnFailed and OnRefused is
// called, last. One thread at a time.
class RequestMetrics {
 public:
  // `metrics` outlives it.
  RequestMetrics(Metrics* metrics, const std::string& model);

  // It was decided now. Without `times.arrived` nothing is observed.
  void OnDecided(const AdmissionTimes& times, TimePoint now);
  // As SessionSink.
  void OnStarted(const StartedInfo& info, TimePoint now);
  void OnToken(TimePoint now);
  void OnDone(const FinishInfo& info);
  void OnFailed(const absl::Status& status);
  // It did not get as far as a session.
  void OnRefused(const absl::Status& status);

 private:
  const std::shared_ptr<RequestSeries> series_;
  StartedInfo started_;
  TimePoint started_at_{};
  TimePoint last_token_{};
  bool has_token_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_METRICS_METRICS_H_
