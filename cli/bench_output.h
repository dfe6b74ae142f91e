// What `strata bench` prints.
#ifndef STRATA_CLI_BENCH_OUTPUT_H_
#define STRATA_CLI_BENCH_OUTPUT_H_

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/bench/load_loop.h"
#include "cli/bench/report.h"
#include "cli/bench/workload.h"

namespace strata::cli {

// The load in words for reports.
struct BenchDescription {
  std::string target;         // The URL of an OpenAI endpoint; "": the cluster.
  std::string prompt_tokens;  // As they were asked for.
  std::string max_tokens;
  std::string lengths_file;  // Instead of those two, when not "".
  bool text_prompts = false;
};

nlohmann::ordered_json BenchDocument(const BenchDescription& description, const Workload& workload,
                                     const LoadOptions& options, const LoadReport& report);
void PrintBench(const BenchDescription& description, const Workload& workload,
                const LoadOptions& options, const LoadReport& report, std::ostream* out);
// One line, for a terminal.
std::string ProgressLine(const LoadProgress& progress, const LoadOptions& options);

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_OUTPUT_H_
