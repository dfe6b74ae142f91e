#include "coordinator/metrics/constraint_metrics.h"

#include <utility>

#include "common/metrics/samples.h"
#include "common/status.h"

namespace strata {
namespace {

using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

// From small schemas to what a compiler's limit allows.
Histogram::BucketBoundaries CompileSeconds() {
  return {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2, 5, 10, 20, 30, 60};
}

// From a state whose tokens are looked up to one whose tokens are all tried.
Histogram::BucketBoundaries MaskSeconds() {
  return {0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002,
          0.005,   0.01,    0.02,    0.05,   0.1,    0.2,    0.5,   1};
}

MetricFamily Times(const char* name, const char* help, const Histogram& histogram) {
  return {name, help, MetricType::Histogram, {histogram.Collect()}};
}

MetricFamily Gauge(const char* name, const char* help, size_t value) {
  return {name, help, MetricType::Gauge, {GaugeSample({}, static_cast<double>(value))}};
}

}  // namespace

ConstraintMetrics::ConstraintMetrics() : compile_(CompileSeconds()), mask_(MaskSeconds()) {}

void ConstraintMetrics::OnCompiled(const absl::Status& status, nanoseconds took) {
  compile_.Observe(ToSeconds(took));
  const std::string reason = status.ok() ? "" : ReasonOf(status);
  const MutexLock lock(&mutex_);
  ++(status.ok() ? compiled_ : failed_[reason.empty() ? "other" : reason]);
}

void ConstraintMetrics::OnKept(size_t grammars, size_t bytes) {
  const MutexLock lock(&mutex_);
  kept_grammars_ = grammars;
  kept_bytes_ = bytes;
}

void ConstraintMetrics::OnMask(nanoseconds took) { mask_.Observe(ToSeconds(took)); }

std::vector<MetricFamily> ConstraintMetrics::Families() const {
  std::vector<MetricFamily> families = {
      Times("strata_constraint_compile_seconds",
            "Reading and compiling a constraint that was not kept, and those that were refused.",
            compile_),
      Times("strata_constraint_mask_seconds",
            "What of a processor it took to find the tokens that may come next in an answer.",
            mask_)};
  const MutexLock lock(&mutex_);
  families.push_back({"strata_constraint_compiles_total",
                      "Constraints that were compiled.",
                      MetricType::Counter,
                      {CounterSample({}, static_cast<double>(compiled_))}});
  MetricFamily failed{"strata_constraint_compile_failures_total",
                      "Constraints that were not compiled, by reason of their refusal.",
                      MetricType::Counter,
                      {}};
  for (const auto& [reason, count] : failed_) {
    failed.metric.push_back(CounterSample({{"reason", reason}}, static_cast<double>(count)));
  }
  families.push_back(std::move(failed));
  families.push_back(
      Gauge("strata_constraint_kept_grammars", "Compiled constraints in memory.", kept_grammars_));
  families.push_back(Gauge("strata_constraint_kept_bytes", "Their memory.", kept_bytes_));
  return families;
}

}  // namespace strata
