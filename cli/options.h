// Options whose values are checked as they are read: strict decimal numbers within a range, lists.
// A bad value is wrong usage (exit code 2).
#ifndef STRATA_CLI_OPTIONS_H_
#define STRATA_CLI_OPTIONS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sdk/cpp/strata.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata::v1 {
class LoadOptions;
}

namespace strata::cli {

// Adds `flag` N, `min` <= N <= `max`. The targets outlive the parse.
CLI::Option* AddCount(CLI::App* app, const std::string& flag, std::optional<uint64_t>* target,
                      uint64_t min, uint64_t max, const std::string& help);
CLI::Option* AddCount(CLI::App* app, const std::string& flag, std::optional<uint32_t>* target,
                      uint32_t min, uint32_t max, const std::string& help);

struct FloatRange {
  float min = -std::numeric_limits<float>::max();
  float max = std::numeric_limits<float>::max();
  bool min_excluded = false;
};
CLI::Option* AddFloat(CLI::App* app, const std::string& flag, std::optional<float>* target,
                      FloatRange range, const std::string& help);

// Any text; help calls its value `type`.
CLI::Option* AddText(CLI::App* app, const std::string& flag, std::string* target,
                     const std::string& type, const std::string& help);

// What a model is placed for: latency, throughput or capacity.
CLI::Option* AddGoal(CLI::App* app, const std::string& flag, std::string* target,
                     const std::string& help);

// A positional or named text that must be given.
CLI::Option* AddRequired(CLI::App* app, const std::string& name, std::string* target,
                         const std::string& help);

// As AddRequired, for a name; refused where it can be none (common/names.h), before anybody is
// asked. A node's may begin with '-', behind `--`: older coordinators let such in.
CLI::Option* AddModelName(CLI::App* app, const std::string& name, std::string* target,
                          const std::string& help);
CLI::Option* AddNodeName(CLI::App* app, const std::string& name, std::string* target,
                         const std::string& help);
CLI::Option* AddRepository(CLI::App* app, const std::string& name, std::string* target,
                           const std::string& help);
// The name of --name: not required.
CLI::Option* AddNewModelName(CLI::App* app, std::string* target, const std::string& help);

// "1,2,3"; at least one.
absl::StatusOr<std::vector<uint32_t>> ParseIds(std::string_view text);
// The parts of "a,b,c"; empty ones are refused.
absl::StatusOr<std::vector<std::string>> ParseNames(std::string_view text);

// The options of `generate` and `chat` that say how to answer.
struct AnswerOptions {
  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> min_tokens;
  sdk::Sampling sampling;
  std::vector<std::string> stop;
  // What the answer is held to: one of them.
  std::string json_schema;  // A file.
  bool json_object = false;
  std::string regex;
  std::vector<std::string> choices;
  std::string grammar;  // A file.
  bool strict = false;
  std::string logit_bias;  // "ID:V,ID:V"
  std::string request_id;
  std::string deadline;
  std::string speculate;

  // Adds them all; `this` outlives the parse.
  void AddTo(CLI::App* app);
  // What was given, into the request and the call. Wrong usage if it does not parse.
  absl::Status Apply(sdk::GenerateRequest* request, sdk::CallOptions* call) const;

 private:
  absl::StatusOr<sdk::Constraint> Held() const;
};

// The options of `model load` and `plan`.
struct PlacementOptions {
  std::string goal;
  std::optional<uint32_t> context;
  std::optional<uint32_t> sessions;
  std::optional<uint64_t> kv_tokens;
  std::string quantize;
  std::string activations;
  std::string kv_dtype;
  std::string nodes;
  std::string layers;
  std::string tool_format;
  std::string reasoning_format;
  std::string recovery;
  std::optional<uint32_t> standby;
  std::optional<uint32_t> ranks;
  std::string speculate;

  void AddTo(CLI::App* app);
  absl::Status Apply(v1::LoadOptions* options) const;
};

// What --nodes and --layers say; either may be "".
absl::Status ApplyNodes(const std::string& nodes, const std::string& layers,
                        v1::LoadOptions* options);

}  // namespace strata::cli

#endif  // STRATA_CLI_OPTIONS_H_
