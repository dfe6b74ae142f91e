#include "coordinator/metrics/model_families.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/metrics/samples.h"

namespace strata {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::string_view kSessionStates[] = {"queued",    "prefill", "decode",
                                               "replaying", "paused",  "preempted"};
constexpr PipelineState kPipelineStates[] = {PipelineState::kNew,      PipelineState::kFencing,
                                             PipelineState::kResync,   PipelineState::kRunning,
                                             PipelineState::kBackoff,  PipelineState::kDown,
                                             PipelineState::kSuspended};

struct CounterInfo {
  const char* name;
  const char* help;
  uint64_t EngineCounters::*value;
};

constexpr CounterInfo kCounters[] = {
    {"strata_steps_sent_total", "Steps sent to the first stage.", &EngineCounters::steps_sent},
    {"strata_steps_committed_total", "Steps that every stage has done.",
     &EngineCounters::steps_committed},
    {"strata_rows_committed_total", "Rows (token positions) of committed steps.",
     &EngineCounters::rows_committed},
    {"strata_item_errors_total", "Sequences that a stage rejected in a step.",
     &EngineCounters::item_errors},
    {"strata_replays_total", "Sequences computed again since a stage did not have them.",
     &EngineCounters::replays},
    {"strata_rebuilds_total", "Sequences computed again after a fence.", &EngineCounters::rebuilds},
    {"strata_preemptions_total", "Requests that gave up their KV memory for more important ones.",
     &EngineCounters::preemptions},
    {"strata_drafted_tokens_total", "Drafted tokens of answers that were computed.",
     &EngineCounters::tokens_drafted},
    {"strata_accepted_tokens_total", "Of them, tokens that the answers have.",
     &EngineCounters::drafts_accepted},
    {"strata_steps_ahead_total", "Steps sent on the guess that the results before them are known.",
     &EngineCounters::steps_ahead},
    {"strata_steps_void_total", "Of them, steps that came to nothing.",
     &EngineCounters::steps_void},
    {"strata_prefix_query_tokens_total", "Prompt tokens that a cached prefix was looked for.",
     &EngineCounters::prefix_query_tokens},
    {"strata_prefix_hit_tokens_total", "Of them, tokens that a cached prefix had.",
     &EngineCounters::prefix_hit_tokens},
    {"strata_prefix_evictions_total", "Cached sequences cut or released for their pages.",
     &EngineCounters::prefix_evictions},
    {"strata_faults_total", "Faults of the pipeline: broken links, steps without result.",
     &EngineCounters::faults},
    {"strata_fences_failed_total", "Fences that were not acknowledged in time.",
     &EngineCounters::fences_failed},
    {"strata_results_discarded_total", "Results seen before, or of an old epoch.",
     &EngineCounters::results_discarded},
    {"strata_kv_ledger_mismatches_total",
     "Reports of a stage that differ from the coordinator's KV ledger.",
     &EngineCounters::ledger_mismatches},
};

struct StageCounterInfo {
  const char* name;
  const char* help;
  double (*value)(const StageCounters& stage);
};

constexpr StageCounterInfo kStageCounters[] = {
    {"strata_stage_compute_seconds_total",
     "Time that the stage computed, sampling on the last one included: its rate is the share of "
     "time in which it is busy.",
     [](const StageCounters& s) { return ToSeconds(s.computed); }},
    {"strata_stage_bubble_seconds_total",
     "Time in which the stage did not compute while steps were under way.",
     [](const StageCounters& s) { return ToSeconds(s.bubble); }},
    {"strata_stage_wait_seconds_total",
     "Time that steps waited at the stage for those before them; of all steps together.",
     [](const StageCounters& s) { return ToSeconds(s.waited); }},
    {"strata_stage_steps_total", "Steps that the stage has done.",
     [](const StageCounters& s) { return static_cast<double>(s.steps); }},
    {"strata_stage_rows_total", "Rows (token positions) of them.",
     [](const StageCounters& s) { return static_cast<double>(s.rows); }},
    {"strata_stage_received_bytes_total",
     "Bytes of the frames that came to the stage: from the one before it, or the coordinator.",
     [](const StageCounters& s) { return static_cast<double>(s.received_bytes); }},
    {"strata_stage_sent_bytes_total",
     "Bytes of the frames that the stage sent: to the next one, or the coordinator.",
     [](const StageCounters& s) { return static_cast<double>(s.sent_bytes); }},
};

struct GaugeInfo {
  const char* name;
  const char* help;
  double (*value)(const EngineSnapshot& engine);
};

bool Waits(const SessionSnapshot& session) {
  return session.state == "queued" || session.state == "preempted";
}

double Waiting(const EngineSnapshot& engine) {
  return static_cast<double>(std::count_if(engine.sessions.begin(), engine.sessions.end(), Waits));
}

// Of the fullest stage and group: what limits what can be admitted.
double KvUsage(const EngineSnapshot& engine) {
  double most = 0;
  for (const KvSnapshot& kv : engine.kv) {
    if (kv.total == 0) continue;
    most = std::max(most, static_cast<double>(kv.live + kv.fenced) / static_cast<double>(kv.total));
  }
  return most;
}

constexpr GaugeInfo kGauges[] = {
    {"strata_requests_running", "Requests that have KV memory.",
     [](const EngineSnapshot& e) { return static_cast<double>(e.sessions.size()) - Waiting(e); }},
    {"strata_requests_waiting", "Requests that wait for KV memory, preempted ones too.", Waiting},
    {"strata_kv_usage_ratio",
     "Share of KV pages that running requests have, on the fullest stage and group; 1 is all.",
     KvUsage},
    {"strata_kv_capacity_tokens", "Tokens of the longest request that the KV memory holds.",
     [](const EngineSnapshot& e) { return static_cast<double>(e.kv_tokens); }},
    {"strata_steps_in_flight", "Steps sent and not committed.",
     [](const EngineSnapshot& e) { return static_cast<double>(e.steps_in_flight); }},
    {"strata_step_token_budget", "Most rows of a step at present.",
     [](const EngineSnapshot& e) { return static_cast<double>(e.token_budget); }},
    {"strata_hop_seconds", "A step's time between stages, estimated.",
     [](const EngineSnapshot& e) { return e.hop_ms / 1e3; }},
};

MetricFamily SessionFamily(const std::vector<ModelSnapshot>& models) {
  MetricFamily family{"strata_sessions", "Requests in flight, by state.", MetricType::Gauge, {}};
  for (const ModelSnapshot& m : models) {
    for (const std::string_view state : kSessionStates) {
      const auto count =
          std::count_if(m.engine.sessions.begin(), m.engine.sessions.end(),
                        [&](const SessionSnapshot& session) { return session.state == state; });
      family.metric.push_back(GaugeSample({{"model", m.model}, {"state", std::string(state)}},
                                          static_cast<double>(count)));
    }
  }
  return family;
}

MetricFamily PipelineFamily(const std::vector<ModelSnapshot>& models) {
  MetricFamily family{"strata_pipeline_state",
                      "1 for the state that the model's pipeline is in.",
                      MetricType::Gauge,
                      {}};
  for (const ModelSnapshot& m : models) {
    for (const PipelineState state : kPipelineStates) {
      family.metric.push_back(
          GaugeSample({{"model", m.model}, {"state", std::string(PipelineStateName(state))}},
                      m.engine.state == state ? 1 : 0));
    }
  }
  return family;
}

MetricFamily KvFamily(const std::vector<ModelSnapshot>& models) {
  MetricFamily family{"strata_kv_pages",
                      "KV pages of each stage and group: free + live + cached + fenced are all.",
                      MetricType::Gauge,
                      {}};
  for (const ModelSnapshot& m : models) {
    for (const KvSnapshot& kv : m.engine.kv) {
      const std::pair<const char*, uint64_t> pages[] = {
          {"free", kv.free}, {"live", kv.live}, {"cached", kv.cached}, {"fenced", kv.fenced}};
      for (const auto& [state, count] : pages) {
        family.metric.push_back(GaugeSample({{"model", m.model},
                                             {"stage", std::to_string(kv.stage)},
                                             {"group", m.kv_groups[kv.group]},
                                             {"state", state}},
                                            static_cast<double>(count)));
      }
    }
  }
  return family;
}

MetricLabels StageLabels(const ModelSnapshot& m, size_t stage) {
  return {{"model", m.model},
          {"stage", std::to_string(stage)},
          {"node", stage < m.engine.nodes.size() ? m.engine.nodes[stage] : ""}};
}

void AddStageFamilies(const std::vector<ModelSnapshot>& models, std::vector<MetricFamily>* out) {
  for (const StageCounterInfo& counter : kStageCounters) {
    MetricFamily& family =
        out->emplace_back(MetricFamily{counter.name, counter.help, MetricType::Counter, {}});
    for (const ModelSnapshot& m : models) {
      const std::vector<StageCounters>& stages = m.engine.pipeline.stages;
      for (size_t i = 0; i < stages.size(); ++i) {
        family.metric.push_back(CounterSample(StageLabels(m, i), counter.value(stages[i])));
      }
    }
  }
  MetricFamily steps{"strata_stage_step_seconds",
                     "Computing one step that has rows, by stage.",
                     MetricType::Histogram,
                     {}};
  MetricFamily hops{"strata_step_hop_seconds",
                    "A step's time between stages, and from and to the coordinator: on all links "
                    "together.",
                    MetricType::Histogram,
                    {}};
  MetricFamily busy{"strata_pipeline_busy_seconds_total",
                    "Time in which steps were under way.",
                    MetricType::Counter,
                    {}};
  for (const ModelSnapshot& m : models) {
    const PipelineCounters& pipeline = m.engine.pipeline;
    for (size_t i = 0; i < pipeline.stages.size(); ++i) {
      steps.metric.push_back(HistogramSample(StageLabels(m, i), pipeline.stages[i].step_time));
    }
    hops.metric.push_back(HistogramSample({{"model", m.model}}, pipeline.hops));
    busy.metric.push_back(CounterSample({{"model", m.model}}, ToSeconds(pipeline.busy)));
  }
  out->push_back(std::move(steps));
  out->push_back(std::move(hops));
  out->push_back(std::move(busy));
}

MetricFamily PoolFamily(const std::vector<ModelSnapshot>& models) {
  MetricFamily family{"strata_kv_pool_pages",
                      "KV pages that each stage and group was given: what strata_kv_pages adds up "
                      "to.",
                      MetricType::Gauge,
                      {}};
  for (const ModelSnapshot& m : models) {
    for (const KvSnapshot& kv : m.engine.kv) {
      family.metric.push_back(GaugeSample({{"model", m.model},
                                           {"stage", std::to_string(kv.stage)},
                                           {"group", m.kv_groups[kv.group]}},
                                          static_cast<double>(kv.total)));
    }
  }
  return family;
}

struct SourceCounterInfo {
  const char* name;
  const char* help;
  std::map<DraftSource, uint64_t> EngineCounters::*value;
};

constexpr SourceCounterInfo kSourceCounters[] = {
    {"strata_drafted_tokens_by_source_total", "Drafted tokens, by where they are from.",
     &EngineCounters::drafted_by_source},
    {"strata_accepted_tokens_by_source_total", "Of them, tokens that the answers have.",
     &EngineCounters::accepted_by_source},
};

void AddDraftFamilies(const std::vector<ModelSnapshot>& models, std::vector<MetricFamily>* out) {
  for (const SourceCounterInfo& counter : kSourceCounters) {
    MetricFamily& family =
        out->emplace_back(MetricFamily{counter.name, counter.help, MetricType::Counter, {}});
    for (const ModelSnapshot& m : models) {
      const std::map<DraftSource, uint64_t>& counts = m.engine.counters.*counter.value;
      for (const DraftSource source : kDraftSources) {
        const auto count = counts.find(source);
        family.metric.push_back(
            CounterSample({{"model", m.model}, {"source", std::string(DraftSourceName(source))}},
                          count == counts.end() ? 0 : static_cast<double>(count->second)));
      }
    }
  }
}

}  // namespace

std::vector<MetricFamily> ModelFamilies(const std::vector<ModelSnapshot>& models) {
  std::vector<MetricFamily> out;
  for (const GaugeInfo& gauge : kGauges) {
    MetricFamily& family =
        out.emplace_back(MetricFamily{gauge.name, gauge.help, MetricType::Gauge, {}});
    for (const ModelSnapshot& m : models) {
      family.metric.push_back(GaugeSample({{"model", m.model}}, gauge.value(m.engine)));
    }
  }
  out.push_back(SessionFamily(models));
  out.push_back(PipelineFamily(models));
  out.push_back(KvFamily(models));
  out.push_back(PoolFamily(models));
  AddStageFamilies(models, &out);
  AddDraftFamilies(models, &out);
  for (const CounterInfo& counter : kCounters) {
    MetricFamily& family =
        out.emplace_back(MetricFamily{counter.name, counter.help, MetricType::Counter, {}});
    for (const ModelSnapshot& m : models) {
      family.metric.push_back(CounterSample({{"model", m.model}},
                                            static_cast<double>(m.engine.counters.*counter.value)));
    }
  }
  return out;
}

}  // namespace strata
