#include "coordinator/metrics/aliases.h"

#include <optional>
#include <string_view>
#include <utility>

namespace strata {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

struct Alias {
  std::string_view own;
  std::string_view alias;
};

constexpr Alias kAliases[] = {
    {"strata_requests_running", "vllm:num_requests_running"},
    {"strata_requests_waiting", "vllm:num_requests_waiting"},
    {"strata_kv_usage_ratio", "vllm:kv_cache_usage_perc"},
    // Both are counted in tokens there.
    {"strata_prefix_query_tokens_total", "vllm:prefix_cache_queries_total"},
    {"strata_prefix_hit_tokens_total", "vllm:prefix_cache_hits_total"},
    {"strata_preemptions_total", "vllm:num_preemptions_total"},
    {"strata_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"strata_generation_tokens_total", "vllm:generation_tokens_total"},
    {"strata_requests_total", "vllm:request_success_total"},
    {"strata_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"strata_inter_token_seconds", "vllm:inter_token_latency_seconds"},
    {"strata_request_seconds", "vllm:e2e_request_latency_seconds"},
    {"strata_request_queue_seconds", "vllm:request_queue_time_seconds"},
    {"strata_request_prefill_seconds", "vllm:request_prefill_time_seconds"},
    {"strata_request_decode_seconds", "vllm:request_decode_time_seconds"},
};

// None: not known under the alias.
std::optional<ClientMetric> Renamed(ClientMetric metric) {
  for (ClientMetric::Label& label : metric.label) {
    if (label.name == "model") {
      label.name = "model_name";
    } else if (label.name == "finished_reason") {
      if (label.value == "failed" || label.value == "refused") return std::nullopt;
      if (label.value == "cancelled") label.value = "abort";
    }
  }
  return metric;
}

}  // namespace

std::vector<MetricFamily> AliasesOf(const std::vector<MetricFamily>& families) {
  std::vector<MetricFamily> out;
  for (const Alias& alias : kAliases) {
    for (const MetricFamily& family : families) {
      if (family.name != alias.own) continue;
      MetricFamily copy{std::string(alias.alias), family.help, family.type, {}};
      for (const ClientMetric& metric : family.metric) {
        if (auto renamed = Renamed(metric)) copy.metric.push_back(*std::move(renamed));
      }
      out.push_back(std::move(copy));
    }
  }
  return out;
}

}  // namespace strata
