#include "coordinator/metrics/request_series.h"

#include <algorithm>
#include <utility>

#include "common/metrics/samples.h"

namespace strata {
namespace {

using prometheus::ClientMetric;
using prometheus::Counter;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

// From a token of a small model to a long answer of a large one.
Histogram::BucketBoundaries Seconds() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75,
          1,     1.5,   2,     3,    5,    7.5,  10,   15,   20,    30,  60,   120, 300, 600, 1800};
}

// Fine around what a decision is to take: some milliseconds.
Histogram::BucketBoundaries AdmissionSeconds() {
  return {0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.0025, 0.003,
          0.0035, 0.004,  0.0045, 0.005,  0.006,   0.007, 0.008,  0.009, 0.01,   0.015,
          0.02,   0.03,   0.05,   0.1,    0.2,     0.5,   1,      5};
}

// A row of a family: the label that tells it from the others, if there are several.
template <typename Metric>
struct Row {
  const char* value;
  Metric RequestSeries::*metric;
};

template <typename Metric>
struct FamilyInfo {
  const char* name;
  const char* help;
  const char* label;  // Null: one row.
  std::vector<Row<Metric>> rows;
};

const std::vector<FamilyInfo<Counter>>& CounterFamilies() {
  static const auto* const families = new std::vector<FamilyInfo<Counter>>{
      {"strata_requests_total",
       "Requests that have ended, by how: stop, length, cancelled, failed, or refused before they "
       "were queued.",
       "finished_reason",
       {{"stop", &RequestSeries::stop},
        {"length", &RequestSeries::length},
        {"cancelled", &RequestSeries::cancelled},
        {"failed", &RequestSeries::failed},
        {"refused", &RequestSeries::refused}}},
      {"strata_prompt_tokens_total",
       "Prompt tokens of requests, at their first token.",
       nullptr,
       {{"", &RequestSeries::prompt_tokens}}},
      {"strata_cached_prompt_tokens_total",
       "Of them, tokens that were not computed since a cached prefix had them; counted when a "
       "request ends.",
       nullptr,
       {{"", &RequestSeries::cached_tokens}}},
      {"strata_generation_tokens_total",
       "Tokens generated.",
       nullptr,
       {{"", &RequestSeries::generation_tokens}}},
  };
  return *families;
}

const std::vector<FamilyInfo<Histogram>>& HistogramFamilies() {
  static const auto* const families = new std::vector<FamilyInfo<Histogram>>{
      {"strata_admission_seconds",
       "From a request's last byte to the decision that it runs, waits, or is refused.",
       nullptr,
       {{"", &RequestSeries::admission}}},
      {"strata_admission_part_seconds",
       "What that is made of: thread, until one is free to read the request; prepare, reading and "
       "tokenizing; loop, until the event loop takes it; decide.",
       "part",
       {{"thread", &RequestSeries::to_thread},
        {"prepare", &RequestSeries::prepare},
        {"loop", &RequestSeries::to_loop},
        {"decide", &RequestSeries::decide}}},
      {"strata_time_to_first_token_seconds",
       "From a request's submission to its first token.",
       nullptr,
       {{"", &RequestSeries::first_token}}},
      {"strata_inter_token_seconds",
       "Between one token of a request and its next.",
       nullptr,
       {{"", &RequestSeries::inter_token}}},
      {"strata_request_seconds",
       "From submission to the end, of requests that ended with stop or length.",
       nullptr,
       {{"", &RequestSeries::total}}},
      {"strata_request_queue_seconds",
       "From submission until there was KV memory.",
       nullptr,
       {{"", &RequestSeries::queue}}},
      {"strata_request_prefill_seconds",
       "From there being KV memory to the first token.",
       nullptr,
       {{"", &RequestSeries::prefill}}},
      {"strata_request_decode_seconds",
       "From the first token to the end, of requests that ended with stop or length.",
       nullptr,
       {{"", &RequestSeries::decode}}},
      {"strata_request_hop_seconds",
       "Time of a request's steps between stages, of requests that ended with stop or length.",
       nullptr,
       {{"", &RequestSeries::hops}}},
  };
  return *families;
}

template <typename Metric>
MetricFamily Collect(const FamilyInfo<Metric>& info,
                     const std::map<std::string, std::shared_ptr<RequestSeries>>& models) {
  MetricFamily family{info.name, info.help, Metric::metric_type, {}};
  for (const auto& [model, series] : models) {
    for (const Row<Metric>& row : info.rows) {
      ClientMetric metric = ((*series).*(row.metric)).Collect();
      metric.label = {{"model", model}};
      if (info.label != nullptr) metric.label.push_back({info.label, row.value});
      std::sort(metric.label.begin(), metric.label.end());
      family.metric.push_back(std::move(metric));
    }
  }
  return family;
}

}  // namespace

RequestSeries::RequestSeries()
    : first_token(Seconds()),
      inter_token(Seconds()),
      total(Seconds()),
      queue(Seconds()),
      prefill(Seconds()),
      decode(Seconds()),
      hops(Seconds()),
      admission(AdmissionSeconds()),
      to_thread(AdmissionSeconds()),
      prepare(AdmissionSeconds()),
      to_loop(AdmissionSeconds()),
      decide(AdmissionSeconds()) {}

Counter* RequestSeries::Ended(const std::string& reason) {
  for (const Row<Counter>& row : CounterFamilies().front().rows) {
    if (reason == row.value) return &(this->*(row.metric));
  }
  return nullptr;
}

std::vector<MetricFamily> RequestFamilies(
    const std::map<std::string, std::shared_ptr<RequestSeries>>& models) {
  std::vector<MetricFamily> out;
  if (models.empty()) {
    return out;
  }
  for (const auto& info : CounterFamilies()) out.push_back(Collect(info, models));
  for (const auto& info : HistogramFamilies()) out.push_back(Collect(info, models));
  return out;
}

}  // namespace strata
