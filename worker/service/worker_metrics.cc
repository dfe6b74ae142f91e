#include "worker/service/worker_metrics.h"

#include <utility>

#include "common/metrics/samples.h"

namespace strata {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

struct NodeInfo {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const WorkerReport& report);
};

constexpr NodeInfo kNode[] = {
    {"strata_worker_joined", "1 while the worker belongs to a cluster.", MetricType::Gauge,
     [](const WorkerReport& r) { return r.joined ? 1.0 : 0.0; }},
    {"strata_worker_threads", "Threads that compute.", MetricType::Gauge,
     [](const WorkerReport& r) { return static_cast<double>(r.threads); }},
    {"strata_worker_memory_limit_bytes", "The most that the process is to use (--memory).",
     MetricType::Gauge,
     [](const WorkerReport& r) { return static_cast<double>(r.memory_limit_bytes); }},
    {"strata_worker_resident_bytes", "Memory that the process has.", MetricType::Gauge,
     [](const WorkerReport& r) { return static_cast<double>(r.resident_bytes); }},
    {"strata_worker_heap_bytes", "Memory that the process has allocated and not given back.",
     MetricType::Gauge, [](const WorkerReport& r) { return static_cast<double>(r.heap_bytes); }},
    {"strata_worker_device_active_bytes",
     "Memory of arrays, of a backend whose library allocates by itself (MLX).", MetricType::Gauge,
     [](const WorkerReport& r) { return static_cast<double>(r.device_active_bytes); }},
    {"strata_worker_device_kept_bytes", "Memory that it keeps to use it again.", MetricType::Gauge,
     [](const WorkerReport& r) { return static_cast<double>(r.device_kept_bytes); }},
    {"strata_worker_cache_bytes", "Weights cached on disk.", MetricType::Gauge,
     [](const WorkerReport& r) { return static_cast<double>(r.cache_bytes); }},
    {"strata_worker_fetched_bytes_total", "Bytes of weights that were fetched.",
     MetricType::Counter,
     [](const WorkerReport& r) { return static_cast<double>(r.fetched_bytes); }},
    {"strata_worker_fetched_from_workers_bytes_total",
     "Bytes of weights that came from other workers.", MetricType::Counter,
     [](const WorkerReport& r) { return static_cast<double>(r.weight_traffic.fetched_bytes); }},
    {"strata_worker_weights_sent_bytes_total", "Bytes of weights that went to other workers.",
     MetricType::Counter,
     [](const WorkerReport& r) { return static_cast<double>(r.weight_traffic.sent_bytes); }},
    {"strata_worker_bad_blobs_total",
     "Weights that came from other workers with another digest, and were thrown away.",
     MetricType::Counter,
     [](const WorkerReport& r) { return static_cast<double>(r.weight_traffic.bad_blobs); }},
    {"strata_worker_standby_bytes", "Of the cache, what is kept for other nodes' layers.",
     MetricType::Gauge, [](const WorkerReport& r) { return static_cast<double>(r.standby_bytes); }},
};

struct StageInfo {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const StageReport& stage);
};

constexpr StageInfo kStage[] = {
    {"strata_worker_weight_bytes", "Weights of the stage, as packed.", MetricType::Gauge,
     [](const StageReport& s) { return static_cast<double>(s.weight_bytes); }},
    {"strata_worker_stage_memory_bytes", "What the stage takes in all: weights, KV, buffers.",
     MetricType::Gauge, [](const StageReport& s) { return static_cast<double>(s.memory_bytes); }},
    {"strata_worker_sequences", "Requests whose KV the stage holds.", MetricType::Gauge,
     [](const StageReport& s) { return static_cast<double>(s.runner.sequences); }},
    {"strata_worker_steps_waiting", "Steps that wait until those before them are computed.",
     MetricType::Gauge, [](const StageReport& s) { return static_cast<double>(s.steps_waiting); }},
    {"strata_worker_compute_seconds_total",
     "Time that the stage computed: its rate is the share of time in which it is busy.",
     MetricType::Counter, [](const StageReport& s) { return ToSeconds(s.work.computed); }},
    {"strata_worker_wait_seconds_total",
     "Time that steps waited for those before them; of all steps together.", MetricType::Counter,
     [](const StageReport& s) { return ToSeconds(s.work.waited); }},
    {"strata_worker_steps_total", "Steps that were computed.", MetricType::Counter,
     [](const StageReport& s) { return static_cast<double>(s.work.steps); }},
    {"strata_worker_rows_total", "Rows (token positions) of them.", MetricType::Counter,
     [](const StageReport& s) { return static_cast<double>(s.work.rows); }},
    {"strata_worker_received_bytes_total", "Bytes of the frames that came.", MetricType::Counter,
     [](const StageReport& s) { return static_cast<double>(s.work.received_bytes); }},
    {"strata_worker_sent_bytes_total", "Bytes of the frames that went on.", MetricType::Counter,
     [](const StageReport& s) { return static_cast<double>(s.work.sent_bytes); }},
    {"strata_worker_items_rejected_total", "Requests' rows that the stage rejected in a step.",
     MetricType::Counter,
     [](const StageReport& s) { return static_cast<double>(s.runner.items_rejected); }},
    {"strata_worker_frames_discarded_total", "Frames seen before, or of an old epoch.",
     MetricType::Counter,
     [](const StageReport& s) { return static_cast<double>(s.runner.frames_discarded); }},
};

MetricLabels StageLabels(const WorkerReport& report, const StageReport& stage) {
  return {{"model", stage.model}, {"stage", std::to_string(stage.stage)}, {"node", report.node}};
}

MetricFamily PagesFamily(const WorkerReport& report) {
  MetricFamily family{"strata_worker_kv_pages",
                      "KV pages of the stage: free, and used by sequences; the coordinator says "
                      "which of these are live, cached or fenced.",
                      MetricType::Gauge,
                      {}};
  for (const StageReport& stage : report.stages) {
    for (size_t group = 0; group < stage.runner.total_pages.size(); ++group) {
      const uint64_t free = stage.runner.free_pages[group];
      const std::pair<const char*, uint64_t> pages[] = {
          {"free", free}, {"used", stage.runner.total_pages[group] - free}};
      for (const auto& [state, count] : pages) {
        MetricLabels labels = StageLabels(report, stage);
        labels.push_back({"group", stage.kv_groups[group]});
        labels.push_back({"state", state});
        family.metric.push_back(GaugeSample(std::move(labels), static_cast<double>(count)));
      }
    }
  }
  return family;
}

}  // namespace

std::vector<MetricFamily> WorkerFamilies(const WorkerReport& report) {
  std::vector<MetricFamily> out;
  out.push_back({"strata_worker_info",
                 "1; what the worker is, as labels.",
                 MetricType::Gauge,
                 {GaugeSample({{"node", report.node},
                               {"version", report.version},
                               {"backend", report.backend},
                               {"isa", report.isa},
                               {"platform", report.platform}},
                              1)}});
  for (const NodeInfo& info : kNode) {
    const MetricLabels labels = {{"node", report.node}};
    const double value = info.value(report);
    out.push_back({info.name,
                   info.help,
                   info.type,
                   {info.type == MetricType::Counter ? CounterSample(labels, value)
                                                     : GaugeSample(labels, value)}});
  }
  MetricFamily& ends =
      out.emplace_back(MetricFamily{"strata_worker_certificate_expires_timestamp_seconds",
                                    "When the worker's certificate ends, in seconds since 1970.",
                                    MetricType::Gauge,
                                    {}});
  if (report.certificate_end_s != 0) {
    ends.metric.push_back(
        GaugeSample({{"node", report.node}}, static_cast<double>(report.certificate_end_s)));
  }
  if (report.stages.empty()) {
    return out;
  }
  for (const StageInfo& info : kStage) {
    MetricFamily& family = out.emplace_back(MetricFamily{info.name, info.help, info.type, {}});
    for (const StageReport& stage : report.stages) {
      const double value = info.value(stage);
      family.metric.push_back(info.type == MetricType::Counter
                                  ? CounterSample(StageLabels(report, stage), value)
                                  : GaugeSample(StageLabels(report, stage), value));
    }
  }
  MetricFamily steps{
      "strata_worker_step_seconds", "Computing one step that has rows.", MetricType::Histogram, {}};
  for (const StageReport& stage : report.stages) {
    steps.metric.push_back(HistogramSample(StageLabels(report, stage), stage.work.step_time));
  }
  out.push_back(std::move(steps));
  out.push_back(PagesFamily(report));
  return out;
}

}  // namespace strata
