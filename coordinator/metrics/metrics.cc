#include "coordinator/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <sstream>
#include <utility>

#include "common/metrics/samples.h"
#include "common/platform/heap.h"
#include "coordinator/metrics/aliases.h"
#include "coordinator/metrics/request_series.h"

namespace strata {

using prometheus::MetricFamily;

Metrics::Metrics() = default;
Metrics::~Metrics() = default;

std::shared_ptr<RequestSeries> Metrics::SeriesOf(const std::string& model) {
  MutexLock lock(&mutex_);
  std::shared_ptr<RequestSeries>& series = series_[model];
  if (series == nullptr) series = std::make_shared<RequestSeries>();
  return series;
}

void Metrics::KeepOnly(const std::set<std::string>& models) {
  MutexLock lock(&mutex_);
  std::erase_if(series_, [&](const auto& entry) { return !models.contains(entry.first); });
}

std::string Metrics::Text(const std::vector<ModelSnapshot>& models, uint64_t weights_sent_bytes,
                          const std::vector<CertificateEnd>& certificates) {
  for (const ModelSnapshot& snapshot : models) {
    SeriesOf(snapshot.model);
  }
  std::map<std::string, std::shared_ptr<RequestSeries>> series;
  {
    MutexLock lock(&mutex_);
    series = series_;
  }
  std::vector<MetricFamily> families = RequestFamilies(series);
  std::vector<MetricFamily> of_models = ModelFamilies(models);
  std::move(of_models.begin(), of_models.end(), std::back_inserter(families));
  std::vector<MetricFamily> of_constraints = constraints_.Families();
  std::move(of_constraints.begin(), of_constraints.end(), std::back_inserter(families));
  MetricFamily heap{"strata_heap_bytes",
                    "Memory that the coordinator has allocated and not given back.",
                    prometheus::MetricType::Gauge,
                    {}};
  heap.metric.push_back(GaugeSample({}, static_cast<double>(HeapBytes())));
  families.push_back(std::move(heap));
  MetricFamily sent{"strata_weights_sent_bytes_total",
                    "Bytes of weights that the coordinator sent to workers.",
                    prometheus::MetricType::Counter,
                    {}};
  sent.metric.push_back(CounterSample({}, static_cast<double>(weights_sent_bytes)));
  families.push_back(std::move(sent));
  MetricFamily ends{"strata_certificate_expires_timestamp_seconds",
                    "When the certificate of a listener ends, in seconds since 1970.",
                    prometheus::MetricType::Gauge,
                    {}};
  for (const CertificateEnd& end : certificates) {
    ends.metric.push_back(GaugeSample({{"listener", end.listener}}, static_cast<double>(end.at_s)));
  }
  families.push_back(std::move(ends));
  std::vector<MetricFamily> aliases = AliasesOf(families);
  std::move(aliases.begin(), aliases.end(), std::back_inserter(families));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

RequestMetrics::RequestMetrics(Metrics* metrics, const std::string& model)
    : series_(metrics->SeriesOf(model)) {}

void RequestMetrics::OnDecided(const AdmissionTimes& times, TimePoint now) {
  if (times.arrived.count() == 0) {
    return;
  }
  series_->admission.Observe(ToSeconds(now - times.arrived));
  TimePoint from = times.arrived;
  const std::pair<prometheus::Histogram*, TimePoint> parts[] = {{&series_->to_thread, times.taken},
                                                                {&series_->prepare, times.prepared},
                                                                {&series_->to_loop, times.on_loop},
                                                                {&series_->decide, now}};
  for (const auto& [part, end] : parts) {
    if (end.count() == 0) {
      return;  // It was refused there.
    }
    part->Observe(ToSeconds(end - from));
    from = end;
  }
}

void RequestMetrics::OnStarted(const StartedInfo& info, TimePoint now) {
  started_ = info;
  started_at_ = now;
  series_->queue.Observe(ToSeconds(info.queued));
}

void RequestMetrics::OnToken(TimePoint now) {
  if (has_token_) {
    series_->inter_token.Observe(ToSeconds(now - last_token_));
  } else {
    has_token_ = true;
    const nanoseconds prefill = now - started_at_;
    series_->prefill.Observe(ToSeconds(prefill));
    series_->first_token.Observe(ToSeconds(started_.queued + prefill));
    series_->prompt_tokens.Increment(started_.prompt_tokens);
  }
  last_token_ = now;
  series_->generation_tokens.Increment();
}

void RequestMetrics::OnDone(const FinishInfo& info) {
  series_->cached_tokens.Increment(info.cached_tokens);
  if (prometheus::Counter* ended = series_->Ended(info.reason)) ended->Increment();
  if (info.reason == "cancelled") {
    return;
  }
  series_->total.Observe(ToSeconds(info.total));
  series_->decode.Observe(ToSeconds(info.total - info.first_token));
  series_->hops.Observe(ToSeconds(info.times.hops));
}

void RequestMetrics::OnFailed(const absl::Status& status) {
  (absl::IsCancelled(status) ? series_->cancelled : series_->failed).Increment();
}

void RequestMetrics::OnRefused(const absl::Status& status) {
  (absl::IsCancelled(status) ? series_->cancelled : series_->refused).Increment();
}

}  // namespace strata
