// What the coordinator counts and measures, for Prometheus (docs/OPERATIONS.md, "Metrics").
#ifndef STRATA_COORDINATOR_METRICS_METRICS_H_
#define STRATA_COORDINATOR_METRICS_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/engine/session.h"
#include "coordinator/metrics/model_families.h"

namespace strata {

// Content-Type of Metrics::Text.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Any thread. The only label of requests is their model (and how they ended), so that there are as
// many series as models that were asked for since the start.
class Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The text that Prometheus scrapes: own names, then their aliases. The models in `models` are
  // there from the first scrape on, with zeros.
  std::string Text(const std::vector<ModelSnapshot>& models);

 private:
  friend class RequestMetrics;
  using Counters = prometheus::Family<prometheus::Counter>;
  using Histograms = prometheus::Family<prometheus::Histogram>;

  Counters& NewCounters(const char* name, const char* help);
  Histograms& NewHistograms(const char* name, const char* help);
  void Ended(const std::string& model, const std::string& reason);

  prometheus::Registry registry_;
  Counters& requests_;
  Counters& prompt_tokens_;
  Counters& cached_tokens_;
  Counters& generation_tokens_;
  Histograms& first_token_;
  Histograms& inter_token_;
  Histograms& total_;
  Histograms& queue_;
  Histograms& prefill_;
  Histograms& decode_;
};

// Observes one request of a model that is known: exactly one of OnDone, OnFailed and OnRefused is
// called, last. One thread at a time.
class RequestMetrics {
 public:
  // `metrics` outlives it.
  RequestMetrics(Metrics* metrics, std::string model);

  // As SessionSink.
  void OnStarted(const StartedInfo& info, TimePoint now);
  void OnToken(TimePoint now);
  void OnDone(const FinishInfo& info);
  void OnFailed(const absl::Status& status);
  // It did not get as far as a session.
  void OnRefused(const absl::Status& status);

 private:
  void End(const absl::Status& status, const char* reason);

  Metrics* const metrics_;
  const std::string model_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& cached_tokens_;
  prometheus::Counter& generation_tokens_;
  prometheus::Histogram& inter_token_;
  StartedInfo started_;
  TimePoint started_at_{};
  TimePoint last_token_{};
  bool has_token_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_METRICS_METRICS_H_
