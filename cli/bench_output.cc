#include "cli/bench_output.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/output.h"
#include "common/status.h"
#include "common/units.h"

namespace strata::cli {
namespace {

Json PercentilesDocument(const Percentiles& percentiles) {
  return {{"p50", percentiles.p50}, {"p95", percentiles.p95}, {"p99", percentiles.p99}};
}

// A number where it is one, else the distribution's name.
Json LengthDocument(const std::string& text) {
  uint32_t tokens = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, tokens);
  return error == std::errc() && rest == end ? Json(tokens) : Json(text);
}

void AddLoad(const BenchDescription& description, const Workload& workload,
             const LoadOptions& options, Json* document) {
  Json& out = *document;
  out["clients"] = options.clients;
  if (workload.options().rate > 0) out["rate"] = workload.options().rate;
  if (options.ramp.count() > 0) out["ramp_s"] = ToMs(options.ramp) / 1e3;
  if (options.duration) out["duration_s"] = ToMs(*options.duration) / 1e3;
  if (description.lengths_file.empty()) {
    out["prompt_tokens"] = LengthDocument(description.prompt_tokens);
    out["max_tokens"] = LengthDocument(description.max_tokens);
  } else {
    out["lengths"] = description.lengths_file;
  }
  out["shared_prefix"] = workload.options().shared_prefix;
  out["prefix_groups"] = workload.options().prefix_groups;
  if (workload.options().distinct > 0) out["distinct"] = workload.options().distinct;
  out["seed"] = workload.options().seed;
  if (!description.target.empty()) {
    out["openai"] = description.target;
    out["text_prompts"] = description.text_prompts;
  }
}

void PrintLoad(const BenchDescription& description, const Workload& workload,
               const LoadOptions& options, const LoadReport& report, std::ostream* out) {
  *out << Counted(report.requests, "request");
  if (workload.options().rate > 0) {
    *out << " at " << Rounded(workload.options().rate) << " a second";
  } else {
    *out << " by " << Counted(options.clients, "client");
  }
  *out << " in " << Rounded(report.wall_s) << " s, " << report.failed << " failed";
  if (report.refused > 0) *out << " (" << report.refused << " of them refused)";
  if (description.lengths_file.empty()) {
    *out << "; " << description.prompt_tokens << " prompt + " << description.max_tokens
         << " generated tokens each";
  } else {
    *out << "; lengths of " << description.lengths_file;
  }
  if (const uint32_t prefix = workload.options().shared_prefix; prefix > 0) {
    *out << ", behind " << prefix << " shared ones in "
         << Counted(workload.options().prefix_groups, "group");
  }
  *out << (description.text_prompts ? ", as text\n" : "\n");
}

void PrintGoodput(const LoadOptions& options, const LoadReport& report, std::ostream* out) {
  const LatencyTargets& targets = options.targets;
  if (!targets.any()) {
    return;
  }
  *out << "  good       " << report.good << ", " << Rounded(report.good_requests_per_s)
       << " requests/s:";
  if (targets.ttft_ms) *out << " first token within " << Rounded(*targets.ttft_ms) << " ms";
  if (targets.ttft_ms && targets.inter_token_ms) *out << ",";
  if (targets.inter_token_ms) {
    *out << " " << Rounded(*targets.inter_token_ms) << " ms between tokens at most on average";
  }
  *out << "\n";
}

}  // namespace

Json BenchDocument(const BenchDescription& description, const Workload& workload,
                   const LoadOptions& options, const LoadReport& report) {
  Json out = {{"prompt_tokens_per_s", report.prompt_tokens_per_s},
              {"generated_tokens_per_s", report.generated_tokens_per_s},
              {"requests_per_s", report.requests_per_s},
              {"ttft_ms", PercentilesDocument(report.ttft_ms)},
              {"inter_token_ms", PercentilesDocument(report.inter_token_ms)},
              {"request_ms", PercentilesDocument(report.request_ms)},
              {"late_ms", PercentilesDocument(report.late_ms)},
              {"requests", report.requests},
              {"failed", report.failed},
              {"refused", report.refused}};
  Json failures = Json::array();
  for (const auto& [reason, failure] : report.failures) {
    failures.push_back(
        {{"reason", reason}, {"count", failure.count}, {"example", Describe(failure.first)}});
  }
  out["failures"] = std::move(failures);
  if (options.targets.any()) {
    out["good"] = report.good;
    out["good_requests_per_s"] = report.good_requests_per_s;
    if (options.targets.ttft_ms) out["target_ttft_ms"] = *options.targets.ttft_ms;
    if (options.targets.inter_token_ms) out["target_itl_ms"] = *options.targets.inter_token_ms;
  }
  out["generated_tokens"] = report.generated_tokens;
  out["cached_tokens"] = report.cached_tokens;
  AddLoad(description, workload, options, &out);
  out["wall_s"] = report.wall_s;
  if (description.target.empty()) out["numerics_class"] = report.numerics_class;
  return out;
}

void PrintBench(const BenchDescription& description, const Workload& workload,
                const LoadOptions& options, const LoadReport& report, std::ostream* out) {
  PrintLoad(description, workload, options, report, out);
  *out << "  requests   " << Rounded(report.requests_per_s) << " a second over the whole time\n"
       << "  prompt     " << Rounded(report.prompt_tokens_per_s) << " tokens/s";
  if (report.cached_tokens > 0) {
    *out << ", " << report.cached_tokens << " of " << report.prompt_tokens << " from the cache";
  }
  *out << "\n  generated  " << Rounded(report.generated_tokens_per_s) << " tokens/s\n";
  PrintGoodput(options, report, out);
  *out << "\n";
  Table table({"MILLISECONDS", ">P50", ">P95", ">P99"});
  const auto add = [&](const std::string& what, const Percentiles& values) {
    table.AddRow({what, Rounded(values.p50), Rounded(values.p95), Rounded(values.p99)});
  };
  add("first token", report.ttft_ms);
  add("between tokens", report.inter_token_ms);
  add("whole request", report.request_ms);
  if (workload.options().rate > 0) add("sent late by", report.late_ms);
  table.Print(out);
  if (!report.failures.empty()) {
    *out << "\n";
    Table failures({"FAILED", ">REQUESTS", "FIRST OF THEM"});
    for (const auto& [reason, failure] : report.failures) {
      failures.AddRow({reason, std::to_string(failure.count), Describe(failure.first)});
    }
    failures.Print(out);
  }
}

std::string ProgressLine(const LoadProgress& progress, const LoadOptions& options) {
  std::string line =
      FormatDuration(std::chrono::duration_cast<std::chrono::seconds>(progress.elapsed)) + ": " +
      std::to_string(progress.ended);
  if (options.requests != std::numeric_limits<uint32_t>::max()) {
    line += " of " + std::to_string(options.requests);
  }
  line += " requests, " + std::to_string(progress.begun - progress.ended) + " in flight, " +
          std::to_string(progress.failed) + " failed, " + std::to_string(progress.tokens) +
          " tokens";
  return line;
}

}  // namespace strata::cli
