// What an engine knows of itself, as metrics; pure.
#ifndef STRATA_COORDINATOR_METRICS_MODEL_FAMILIES_H_
#define STRATA_COORDINATOR_METRICS_MODEL_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "coordinator/engine/engine.h"

namespace strata {

// A loaded model at the time of a scrape.
struct ModelSnapshot {
  std::string model;
  std::vector<std::string> kv_groups;  // Their names, by group.
  EngineSnapshot engine;
};

// Gauges, and counters that begin anew with each engine (a load, a coordinator's start). Labels
// are bounded by the plan: model, stage, KV group, state.
std::vector<prometheus::MetricFamily> ModelFamilies(const std::vector<ModelSnapshot>& models);

}  // namespace strata

#endif  // STRATA_COORDINATOR_METRICS_MODEL_FAMILIES_H_
