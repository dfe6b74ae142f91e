#include "coordinator/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <sstream>
#include <utility>

#include "coordinator/metrics/aliases.h"

namespace strata {
namespace {

using prometheus::Histogram;
using prometheus::MetricFamily;

// From a token of a small model to a long answer of a large one.
Histogram::BucketBoundaries Seconds() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75,
          1,     1.5,   2,     3,    5,    7.5,  10,   15,   20,    30,  60,   120, 300, 600, 1800};
}

double ToSeconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Metrics::Counters& Metrics::NewCounters(const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
}

Metrics::Histograms& Metrics::NewHistograms(const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
}

Metrics::Metrics()
    : requests_(NewCounters("strata_requests_total",
                            "Requests that have ended, by how: stop, length, cancelled, failed, or "
                            "refused before they were queued.")),
      prompt_tokens_(NewCounters("strata_prompt_tokens_total",
                                 "Prompt tokens of requests, at their first token.")),
      cached_tokens_(NewCounters("strata_cached_prompt_tokens_total",
                                 "Of them, tokens that were not computed since a cached prefix had "
                                 "them; counted when a request ends.")),
      generation_tokens_(NewCounters("strata_generation_tokens_total", "Tokens generated.")),
      first_token_(NewHistograms("strata_time_to_first_token_seconds",
                                 "From a request's submission to its first token.")),
      inter_token_(NewHistograms("strata_inter_token_seconds",
                                 "Between one token of a request and its next.")),
      total_(NewHistograms("strata_request_seconds",
                           "From submission to the end, of requests that ended with stop or "
                           "length.")),
      queue_(NewHistograms("strata_request_queue_seconds",
                           "From submission until there was KV memory.")),
      prefill_(NewHistograms("strata_request_prefill_seconds",
                             "From there being KV memory to the first token.")),
      decode_(NewHistograms("strata_request_decode_seconds",
                            "From the first token to the end, of requests that ended with stop or "
                            "length.")) {}

void Metrics::Ended(const std::string& model, const std::string& reason) {
  requests_.Add({{"model", model}, {"finished_reason", reason}}).Increment();
}

std::string Metrics::Text(const std::vector<ModelSnapshot>& models) {
  for (const ModelSnapshot& snapshot : models) {
    const prometheus::Labels labels = {{"model", snapshot.model}};
    for (const char* reason : {"stop", "length", "cancelled", "failed", "refused"}) {
      requests_.Add({{"model", snapshot.model}, {"finished_reason", reason}});
    }
    for (Counters* family : {&prompt_tokens_, &cached_tokens_, &generation_tokens_}) {
      family->Add(labels);
    }
    for (Histograms* family :
         {&first_token_, &inter_token_, &total_, &queue_, &prefill_, &decode_}) {
      family->Add(labels, Seconds());
    }
  }
  std::vector<MetricFamily> families = registry_.Collect();
  std::vector<MetricFamily> of_models = ModelFamilies(models);
  std::move(of_models.begin(), of_models.end(), std::back_inserter(families));
  std::vector<MetricFamily> aliases = AliasesOf(families);
  std::move(aliases.begin(), aliases.end(), std::back_inserter(families));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

RequestMetrics::RequestMetrics(Metrics* metrics, std::string model)
    : metrics_(metrics),
      model_(std::move(model)),
      prompt_tokens_(metrics->prompt_tokens_.Add({{"model", model_}})),
      cached_tokens_(metrics->cached_tokens_.Add({{"model", model_}})),
      generation_tokens_(metrics->generation_tokens_.Add({{"model", model_}})),
      inter_token_(metrics->inter_token_.Add({{"model", model_}}, Seconds())) {}

void RequestMetrics::OnStarted(const StartedInfo& info, TimePoint now) {
  started_ = info;
  started_at_ = now;
  metrics_->queue_.Add({{"model", model_}}, Seconds()).Observe(ToSeconds(info.queued));
}

void RequestMetrics::OnToken(TimePoint now) {
  if (has_token_) {
    inter_token_.Observe(ToSeconds(now - last_token_));
  } else {
    has_token_ = true;
    const nanoseconds prefill = now - started_at_;
    const prometheus::Labels labels = {{"model", model_}};
    metrics_->prefill_.Add(labels, Seconds()).Observe(ToSeconds(prefill));
    metrics_->first_token_.Add(labels, Seconds()).Observe(ToSeconds(started_.queued + prefill));
    prompt_tokens_.Increment(started_.prompt_tokens);
  }
  last_token_ = now;
  generation_tokens_.Increment();
}

void RequestMetrics::OnDone(const FinishInfo& info) {
  cached_tokens_.Increment(info.cached_tokens);
  metrics_->Ended(model_, info.reason);
  if (info.reason == "cancelled") {
    return;
  }
  const prometheus::Labels labels = {{"model", model_}};
  metrics_->total_.Add(labels, Seconds()).Observe(ToSeconds(info.total));
  metrics_->decode_.Add(labels, Seconds()).Observe(ToSeconds(info.total - info.first_token));
}

void RequestMetrics::OnFailed(const absl::Status& status) { End(status, "failed"); }

void RequestMetrics::OnRefused(const absl::Status& status) { End(status, "refused"); }

void RequestMetrics::End(const absl::Status& status, const char* reason) {
  metrics_->Ended(model_, absl::IsCancelled(status) ? "cancelled" : reason);
}

}  // namespace strata
