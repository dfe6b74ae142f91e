#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <fstream>
#include <utility>

#include "cli/command.h"
#include "common/limits.h"
#include "common/model/rank_outputs.h"
#include "common/names.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/types.pb.h"

namespace strata::cli {
namespace {

// The whole of `text` as a number; false otherwise.
template <typename T>
bool ReadNumber(std::string_view text, T* value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && rest == end && !text.empty();
}

// A file that a flag names, up to the largest that the API takes.
absl::StatusOr<std::string> ReadText(const std::string& flag, const std::string& path) {
  constexpr std::streamsize kMost = std::streamsize{4} << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMost), '\0');
  file.read(text.data(), kMost);
  if (!file.is_open() || file.bad() || !file.eof()) {
    return UsageError(
        flag + " " + path + ": " +
        (file.is_open() && !file.bad() ? "it is longer than 4 MiB" : "it cannot be read"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

[[noreturn]] void Refuse(const std::string& flag, const std::string& text,
                         const std::string& wanted) {
  throw CLI::ValidationError(flag + " " + text, "it must be " + wanted);
}

template <typename T>
CLI::Option* AddInteger(CLI::App* app, const std::string& flag, std::optional<T>* target, T min,
                        T max, const std::string& help) {
  return app
      ->add_option_function<std::string>(
          flag,
          [=](const std::string& text) {
            T value = 0;
            if (!ReadNumber(text, &value) || value < min || value > max) {
              Refuse(flag, text,
                     max == std::numeric_limits<T>::max()
                         ? "a whole number from " + std::to_string(min) + " on"
                         : "a whole number from " + std::to_string(min) + " to " +
                               std::to_string(max));
            }
            *target = value;
          },
          help)
      ->type_name("N");
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    std::string_view part = text.substr(0, at);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    parts.push_back(part);
    if (at == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

CLI::Option* AddChoice(CLI::App* app, const std::string& flag, std::string* target,
                       const std::vector<std::string>& choices, const std::string& help) {
  std::string type;
  for (const std::string& choice : choices) {
    type += (type.empty() ? "" : "|") + choice;
  }
  return app
      ->add_option_function<std::string>(
          flag,
          [=](const std::string& text) {
            if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
              Refuse(flag, text, "one of " + type);
            }
            *target = text;
          },
          help)
      ->type_name(type);
}

absl::Status ApplyLogitBias(const std::string& text, sdk::Sampling* sampling) {
  if (text.empty()) {
    return absl::OkStatus();
  }
  for (const std::string_view entry : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(entry, ':');
    uint32_t id = 0;
    float bias = 0;
    if (parts.size() != 2 || !ReadNumber(parts[0], &id) || !ReadNumber(parts[1], &bias) ||
        !std::isfinite(bias)) {
      return UsageError("--logit-bias \"" + std::string(entry) +
                        "\": write TOKEN_ID:NUMBER, for example 42:-100,7:2.5");
    }
    if (!sampling->logit_bias.emplace(id, bias).second) {
      return UsageError("--logit-bias names token " + std::to_string(id) + " twice");
    }
  }
  return absl::OkStatus();
}

// "a", or "a+b" or "a=2+b=1" for nodes that compute the layers together.
absl::Status ApplyPinnedNodes(std::string_view text, v1::LoadOptions::PinnedLayers* pinned) {
  const std::vector<std::string_view> parts = Split(text, '+');
  for (const std::string_view part : parts) {
    const size_t equals = part.find('=');
    const std::string node(part.substr(0, equals));
    uint32_t weight = 0;
    if (equals != std::string_view::npos &&
        (parts.size() == 1 || !ReadNumber(part.substr(equals + 1), &weight) || weight == 0 ||
         weight > kShareParts)) {
      return UsageError("--layers \"" + std::string(text) +
                        "\": write NODE=SHARE+NODE=SHARE, with shares of 1 to " +
                        std::to_string(kShareParts) + ", for example a=2+b=1:0-9");
    }
    if (const absl::Status good = CheckNodeName(node); !good.ok()) {
      return UsageError("--layers: " + std::string(good.message()));
    }
    if (parts.size() == 1) {
      pinned->set_node(node);
    } else {
      v1::LoadOptions::PinnedRank* rank = pinned->add_ranks();
      rank->set_node(node);
      rank->set_weight(weight);
    }
  }
  return absl::OkStatus();
}

absl::Status ApplyLayers(const std::string& text, v1::LoadOptions* options) {
  for (const std::string_view entry : Split(text, ',')) {
    const size_t colon = entry.rfind(':');
    const std::string_view range = colon == std::string_view::npos ? "" : entry.substr(colon + 1);
    const std::vector<std::string_view> ends = Split(range, '-');
    uint32_t first = 0;
    uint32_t last = 0;
    if (colon == std::string_view::npos || colon == 0 || ends.size() > 2 ||
        !ReadNumber(ends.front(), &first) || !ReadNumber(ends.back(), &last) || last < first) {
      return UsageError("--layers \"" + std::string(entry) +
                        "\": write NODE:FIRST-LAST, for example a:0-9,b:10-31");
    }
    v1::LoadOptions::PinnedLayers* pinned = options->add_layers();
    RETURN_IF_ERROR(ApplyPinnedNodes(entry.substr(0, colon), pinned));
    pinned->set_first_layer(first);
    pinned->set_last_layer(last);
  }
  return absl::OkStatus();
}

}  // namespace

CLI::Option* AddCount(CLI::App* app, const std::string& flag, std::optional<uint64_t>* target,
                      uint64_t min, uint64_t max, const std::string& help) {
  return AddInteger(app, flag, target, min, max, help);
}

CLI::Option* AddCount(CLI::App* app, const std::string& flag, std::optional<uint32_t>* target,
                      uint32_t min, uint32_t max, const std::string& help) {
  return AddInteger(app, flag, target, min, max, help);
}

CLI::Option* AddFloat(CLI::App* app, const std::string& flag, std::optional<float>* target,
                      FloatRange range, const std::string& help) {
  return app
      ->add_option_function<std::string>(
          flag,
          [=](const std::string& text) {
            float value = 0;
            const bool read = ReadNumber(text, &value) && std::isfinite(value);
            if (!read || value < range.min || value > range.max ||
                (range.min_excluded && value == range.min)) {
              std::string wanted = "a number";
              if (range.min > -std::numeric_limits<float>::max()) {
                wanted += (range.min_excluded ? " above " : " from ") + FormatFloat(range.min);
                wanted += range.max < std::numeric_limits<float>::max()
                              ? " to " + FormatFloat(range.max)
                              : std::string(range.min_excluded ? "" : " on");
              }
              Refuse(flag, text, wanted);
            }
            *target = value;
          },
          help)
      ->type_name("NUMBER");
}

CLI::Option* AddText(CLI::App* app, const std::string& flag, std::string* target,
                     const std::string& type, const std::string& help) {
  return app->add_option(flag, *target, help)->type_name(type);
}

CLI::Option* AddRequired(CLI::App* app, const std::string& name, std::string* target,
                         const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            if (text.empty()) {
              throw CLI::ValidationError(name, "it must not be empty");
            }
            *target = text;
          },
          help)
      ->required()
      ->type_name("");
}

namespace {

std::function<void(const std::string&)> Checked(const std::string& option, std::string* target,
                                                absl::Status (*check)(std::string_view)) {
  return [=](const std::string& text) {
    if (text.empty()) {
      throw CLI::ValidationError(option, "it must not be empty");
    }
    if (const absl::Status status = check(text); !status.ok()) {
      throw CLI::ValidationError(option, std::string(status.message()));
    }
    *target = text;
  };
}

absl::Status CheckKnownNode(std::string_view name) {
  std::string_view rest = name;
  while (!rest.empty() && rest.front() == '-') {
    rest.remove_prefix(1);
  }
  return CheckNodeName(rest).ok() && name.size() <= kMaxNodeNameBytes ? absl::OkStatus()
                                                                      : CheckNodeName(name);
}

}  // namespace

CLI::Option* AddModelName(CLI::App* app, const std::string& name, std::string* target,
                          const std::string& help) {
  return app->add_option_function<std::string>(name, Checked(name, target, CheckModelName), help)
      ->required()
      ->type_name("");
}

CLI::Option* AddNodeName(CLI::App* app, const std::string& name, std::string* target,
                         const std::string& help) {
  return app->add_option_function<std::string>(name, Checked(name, target, CheckKnownNode), help)
      ->required()
      ->type_name("");
}

CLI::Option* AddRepository(CLI::App* app, const std::string& name, std::string* target,
                           const std::string& help) {
  return app
      ->add_option_function<std::string>(name, Checked(name, target, CheckRepositoryName), help)
      ->required()
      ->type_name("");
}

CLI::Option* AddNewModelName(CLI::App* app, std::string* target, const std::string& help) {
  return app
      ->add_option_function<std::string>("--name", Checked("--name", target, CheckModelName), help)
      ->type_name("NAME");
}

absl::StatusOr<std::vector<uint32_t>> ParseIds(std::string_view text) {
  std::vector<uint32_t> ids;
  for (const std::string_view part : Split(text, ',')) {
    uint32_t id = 0;
    if (!ReadNumber(part, &id)) {
      return UsageError("\"" + std::string(part) + "\" is no token id; write them like 1,2,3");
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::vector<std::string>> ParseNames(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view part : Split(text, ',')) {
    if (part.empty()) {
      return UsageError("\"" + std::string(text) + "\" names nothing between two commas");
    }
    names.emplace_back(part);
  }
  return names;
}

void AnswerOptions::AddTo(CLI::App* app) {
  constexpr uint32_t kAny = std::numeric_limits<uint32_t>::max();
  const std::string answer = "Answer";
  const std::string choice = "Sampling (unset: the model's generation_config, then temperature 1)";
  AddCount(app, "--max-tokens", &max_tokens, 1, kMaxContextTokens,
           "Most tokens to generate; default 512, or what fits")
      ->group(answer);
  AddCount(app, "--min-tokens", &min_tokens, 0, kMaxContextTokens,
           "Neither end token nor --stop ends the answer before\nit has so many; default 0")
      ->group(answer);
  app->add_option("--stop", stop, "End before this text; may be repeated, at most 16 times")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(answer);
  const std::string held =
      "What the answer is held to (one of these; it ends where that is complete)";
  AddText(app, "--json-schema", &json_schema, "FILE", "JSON that satisfies the schema in FILE")
      ->group(held);
  app->add_flag("--strict", strict, "Of --json-schema: objects with properties have no others")
      ->group(held);
  app->add_flag("--json-object", json_object, "Any object of JSON")->group(held);
  AddText(app, "--regex", &regex, "PATTERN", "A text that the pattern takes as a whole")
      ->group(held);
  app->add_option("--choice", choices, "One of these texts; given once for each")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(held);
  AddText(app, "--grammar", &grammar, "FILE", "A text of the rule root of the EBNF in FILE")
      ->group(held);
  AddText(app, "--request-id", &request_id, "ID", "The request's name; default: a new one")
      ->group(answer);
  AddText(app, "--deadline", &deadline, "TIME", "Give up after this long, for example 30s")
      ->group(answer);
  AddChoice(app, "--speculate", &speculate, {"auto", "off", "lookup"},
            "Draft tokens, which changes none; default as the\nmodel was loaded")
      ->group(answer);
  AddFloat(app, "--temperature", &sampling.temperature, {.min = 0}, "0 is greedy")->group(choice);
  AddCount(app, "--top-k", &sampling.top_k, 0, kAny, "Only the N most probable; 0 is off")
      ->group(choice);
  AddFloat(app, "--top-p", &sampling.top_p, {.min = 0, .max = 1},
           "Only the most probable that sum to this")
      ->group(choice);
  AddFloat(app, "--min-p", &sampling.min_p, {.min = 0, .max = 1},
           "Only those at least this share of the best")
      ->group(choice);
  AddFloat(app, "--typical-p", &sampling.typical_p, {.min = 0, .max = 1, .min_excluded = true},
           "Only the most typical that sum to this")
      ->group(choice);
  AddFloat(app, "--repetition-penalty", &sampling.repetition_penalty,
           {.min = 0, .min_excluded = true}, "Above 1: known tokens less; 1 is off")
      ->group(choice);
  AddFloat(app, "--frequency-penalty", &sampling.frequency_penalty, {.min = -2, .max = 2},
           "By how often a token was generated; 0 is off")
      ->group(choice);
  AddFloat(app, "--presence-penalty", &sampling.presence_penalty, {.min = -2, .max = 2},
           "For tokens that were generated; 0 is off")
      ->group(choice);
  AddText(app, "--logit-bias", &logit_bias, "ID:V,...", "Added to the logits of these token ids")
      ->group(choice);
  AddCount(app, "--seed", &sampling.seed, 0, std::numeric_limits<uint64_t>::max(),
           "The same seed gives the same answer; default: drawn")
      ->group(choice);
}

absl::StatusOr<sdk::Constraint> AnswerOptions::Held() const {
  const int given = (json_schema.empty() ? 0 : 1) + (json_object ? 1 : 0) +
                    (regex.empty() ? 0 : 1) + (choices.empty() ? 0 : 1) + (grammar.empty() ? 0 : 1);
  if (given > 1) {
    return UsageError(
        "an answer is held to one of --json-schema, --json-object, --regex, --choice "
        "and --grammar");
  }
  if (strict && json_schema.empty()) {
    return UsageError("--strict is for --json-schema");
  }
  if (!json_schema.empty()) {
    ASSIGN_OR_RETURN(std::string schema, ReadText("--json-schema", json_schema));
    return sdk::Constraint(sdk::JsonSchema{std::move(schema), strict});
  }
  if (!grammar.empty()) {
    ASSIGN_OR_RETURN(std::string ebnf, ReadText("--grammar", grammar));
    return sdk::Constraint(sdk::Ebnf{std::move(ebnf)});
  }
  if (json_object) {
    return sdk::Constraint(sdk::AnyJsonObject{});
  }
  if (!regex.empty()) {
    return sdk::Constraint(sdk::Regex{regex});
  }
  return choices.empty() ? sdk::Constraint() : sdk::Constraint(sdk::Choices{choices});
}

absl::Status AnswerOptions::Apply(sdk::GenerateRequest* request, sdk::CallOptions* call) const {
  request->max_tokens = max_tokens.value_or(0);
  request->min_tokens = min_tokens.value_or(0);
  request->sampling = sampling;
  request->speculate = speculate;
  RETURN_IF_ERROR(ApplyLogitBias(logit_bias, &request->sampling));
  if (stop.size() > kMaxStopStrings) {
    return UsageError("--stop is given " + std::to_string(stop.size()) + " times; at most " +
                      std::to_string(kMaxStopStrings));
  }
  for (const std::string& text : stop) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      return UsageError("--stop must be 1 to " + std::to_string(kMaxStopBytes) + " bytes long");
    }
  }
  request->stop = stop;
  ASSIGN_OR_RETURN(request->constraint, Held());
  if (request_id.size() > kMaxRequestIdBytes ||
      !std::all_of(request_id.begin(), request_id.end(),
                   [](char c) { return c >= 0x20 && c < 0x7F; })) {
    return UsageError("--request-id must be 1 to " + std::to_string(kMaxRequestIdBytes) +
                      " printable ASCII characters");
  }
  request->request_id = request_id;
  if (!deadline.empty()) {
    const auto limit = ParseDuration(deadline);
    if (!limit.ok() || limit->count() <= 0) {
      return UsageError("--deadline " + deadline + ": write a time like 500ms, 30s or 24h");
    }
    call->timeout = *limit;
  }
  return absl::OkStatus();
}

CLI::Option* AddGoal(CLI::App* app, const std::string& flag, std::string* target,
                     const std::string& help) {
  return AddChoice(app, flag, target, {"latency", "throughput", "capacity"}, help);
}

void PlacementOptions::AddTo(CLI::App* app) {
  const std::string group = "Placement";
  constexpr uint32_t kAny = std::numeric_limits<uint32_t>::max();
  AddGoal(app, "--goal", &goal, "What to place for; default latency")->group(group);
  AddCount(app, "--context", &context, 1, kMaxContextTokens,
           "Tokens that a session may have;\ndefault min(the model's, 8192)")
      ->group(group);
  AddCount(app, "--sessions", &sessions, 1, kAny, "Sessions that fit at full context; default 4")
      ->group(group);
  AddCount(app, "--kv-tokens", &kv_tokens, 1, std::numeric_limits<uint64_t>::max(),
           "KV memory in tokens; default context x sessions")
      ->group(group);
  AddChoice(app, "--quantize", &quantize, {"none", "int8", "int4"},
            "Weights; default none, as stored")
      ->group(group);
  AddChoice(app, "--activations", &activations, {"auto", "int8", "f32"},
            "Default auto: int8 for quantized weights, else f32")
      ->group(group);
  AddChoice(app, "--kv-dtype", &kv_dtype, {"f16", "f32", "bf16"}, "KV cache; default f16")
      ->group(group);
  AddText(app, "--nodes", &nodes, "a,b", "Use only these nodes; default all that are ready")
      ->group(group);
  AddText(app, "--layers", &layers, "a:0-9,b:10-31",
          "The whole placement, by hand; a+b:0-9 has two\nnodes compute layers together, "
          "a=2+b=1:0-9 by\nthese shares")
      ->group(group);
  AddCount(
      app, "--ranks", &ranks, 1, kMostRanks,
      "So many nodes compute each stage together, with\nshares by their bandwidth; 1: one node a "
      "stage;\ndefault: more than one where the plan says that\nthey win")
      ->group(group);
  AddChoice(app, "--recovery", &recovery, {"wait", "move", "off"},
            "When a node is lost, requests wait for it, move\nto other nodes, or fail; default "
            "move, and wait\n"
            "with --nodes or --layers")
      ->group(group);
  AddCount(
      app, "--standby", &standby, 0, 16,
      "Keep packed weights of every layer on the disks of\nso many other nodes too, so that the "
      "loss of one\nmoves no weights; default 0")
      ->group(group);
  AddText(
      app, "--speculate", &speculate, "HOW",
      "Draft tokens of answers, which changes none of\nthem: auto, off, lookup (from the request's "
      "own\nand from recent answers), or model=NAME (by a\nsmaller model too, which is loaded for "
      "it);\ndefault auto, or off unless all layers are on\nCPUs")
      ->group(group);
  AddText(app, "--tool-format", &tool_format, "NAME",
          "How answers write calls of tools: auto, none or\na name of docs/API.md; default auto")
      ->group(group);
  AddText(app, "--reasoning-format", &reasoning_format, "NAME",
          "Likewise for what it thinks; default auto")
      ->group(group);
}

absl::Status PlacementOptions::Apply(v1::LoadOptions* options) const {
  if (goal == "latency") options->set_goal(v1::PLAN_GOAL_LATENCY);
  if (goal == "throughput") options->set_goal(v1::PLAN_GOAL_THROUGHPUT);
  if (goal == "capacity") options->set_goal(v1::PLAN_GOAL_CAPACITY);
  options->set_context(context.value_or(0));
  options->set_sessions(sessions.value_or(0));
  options->set_kv_tokens(kv_tokens.value_or(0));
  if (quantize == "none") options->set_quantize(v1::QUANTIZE_NONE);
  if (quantize == "int8") options->set_quantize(v1::QUANTIZE_INT8);
  if (quantize == "int4") options->set_quantize(v1::QUANTIZE_INT4);
  if (activations == "f32") options->set_activations(v1::ACTIVATIONS_F32);
  if (activations == "int8") options->set_activations(v1::ACTIVATIONS_INT8);
  if (kv_dtype == "f16") options->set_kv_dtype(v1::KV_DTYPE_F16);
  if (kv_dtype == "f32") options->set_kv_dtype(v1::KV_DTYPE_F32);
  if (kv_dtype == "bf16") options->set_kv_dtype(v1::KV_DTYPE_BF16);
  if (recovery == "wait") options->set_recovery(v1::RECOVERY_WAIT);
  if (recovery == "move") options->set_recovery(v1::RECOVERY_MOVE);
  if (recovery == "off") options->set_recovery(v1::RECOVERY_OFF);
  options->set_standby(standby.value_or(0));
  options->set_ranks(static_cast<uint32_t>(ranks.value_or(0)));
  options->set_speculate(speculate);
  options->set_tool_format(tool_format);
  options->set_reasoning_format(reasoning_format);
  return ApplyNodes(nodes, layers, options);
}

absl::Status ApplyNodes(const std::string& nodes, const std::string& layers,
                        v1::LoadOptions* options) {
  if (!nodes.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ParseNames(nodes));
    for (const std::string& name : names) {
      if (const absl::Status good = CheckKnownNode(name); !good.ok()) {
        return UsageError("--nodes: " + std::string(good.message()));
      }
    }
    options->mutable_nodes()->Add(names.begin(), names.end());
  }
  return layers.empty() ? absl::OkStatus() : ApplyLayers(layers, options);
}

}  // namespace strata::cli
