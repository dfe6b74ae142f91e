// strata bench.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/bench/cluster_target.h"
#include "cli/bench/load_loop.h"
#include "cli/bench/openai_target.h"
#include "cli/bench_output.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

constexpr uint32_t kDefaultClients = 4;
constexpr uint32_t kDefaultOpenClients = 1024;
constexpr uint32_t kMaxClients = 16'384;
constexpr nanoseconds kDefaultOpenDuration = std::chrono::seconds(30);
constexpr uint32_t kOpenAiVocab = 32'000;

struct BenchFlags {
  std::string model;
  std::optional<uint32_t> clients;
  std::optional<float> rate;
  std::optional<uint32_t> requests;
  std::string duration;
  std::string ramp;
  std::string prompt_tokens;
  std::string max_tokens;
  std::string lengths;
  std::optional<uint32_t> shared_prefix;
  std::optional<uint32_t> prefix_groups;
  std::optional<uint32_t> distinct;
  std::optional<uint64_t> seed;
  std::string target_ttft;
  std::string target_itl;
  std::string openai;
  std::string api_key;
  std::string ca;
  std::optional<uint32_t> vocab_size;
  bool text = false;
  std::string answers;
};

absl::Status ReadDuration(const std::string& flag, const std::string& text,
                          std::optional<nanoseconds>* value) {
  if (text.empty()) {
    return absl::OkStatus();
  }
  const auto parsed = ParseDuration(text);
  if (!parsed.ok() || parsed->count() <= 0) {
    return UsageError(flag + " " + text + ": write a time like 500ms, 30s or 24h");
  }
  *value = *parsed;
  return absl::OkStatus();
}

absl::Status ReadTarget(const std::string& flag, const std::string& text,
                        std::optional<double>* ms) {
  std::optional<nanoseconds> time;
  RETURN_IF_ERROR(ReadDuration(flag, text, &time));
  if (time.has_value()) {
    *ms = ToMs(*time);
  }
  return absl::OkStatus();
}

absl::StatusOr<LengthDistribution> ReadLength(const std::string& flag, const std::string& text) {
  auto length = LengthDistribution::Parse(text);
  if (!length.ok()) {
    return UsageError(flag + ": " + std::string(length.status().message()));
  }
  return length;
}

absl::StatusOr<std::vector<LengthPair>> ReadLengthsFile(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    return Error(absl::StatusCode::kNotFound, "NO_SUCH_FILE", "cannot read " + path)
        .Hint("give --lengths a file with lines of PROMPT,ANSWER tokens");
  }
  auto lengths = ParseLengths(text);
  return lengths.ok() ? lengths : Annotate(lengths.status(), path);
}

// What contradicts itself.
absl::Status CheckFlags(const BenchFlags& flags) {
  if (!flags.lengths.empty() && (!flags.prompt_tokens.empty() || !flags.max_tokens.empty())) {
    return UsageError("--lengths says how long all are; leave out --prompt-tokens, --max-tokens");
  }
  if (flags.prefix_groups && !flags.shared_prefix) {
    return UsageError("--prefix-groups needs --shared-prefix");
  }
  if (flags.rate && !flags.ramp.empty()) {
    return UsageError("--ramp is for clients that wait for their answers, not for --rate");
  }
  if (flags.openai.empty() &&
      (!flags.api_key.empty() || !flags.ca.empty() || flags.vocab_size || flags.text)) {
    return UsageError("--api-key, --ca, --vocab-size and --text are for --openai");
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadOptions> ReadLoad(const BenchFlags& flags) {
  LoadOptions options;
  options.clients =
      flags.clients.value_or(flags.rate.has_value() ? kDefaultOpenClients : kDefaultClients);
  RETURN_IF_ERROR(ReadDuration("--duration", flags.duration, &options.duration));
  std::optional<nanoseconds> ramp;
  RETURN_IF_ERROR(ReadDuration("--ramp", flags.ramp, &ramp));
  options.ramp = ramp.value_or(nanoseconds(0));
  RETURN_IF_ERROR(ReadTarget("--target-ttft", flags.target_ttft, &options.targets.ttft_ms));
  RETURN_IF_ERROR(ReadTarget("--target-itl", flags.target_itl, &options.targets.inter_token_ms));
  options.requests = std::numeric_limits<uint32_t>::max();
  if (flags.requests.has_value()) {
    options.requests = *flags.requests;
  } else if (!options.duration.has_value() && flags.rate.has_value()) {
    options.duration = kDefaultOpenDuration;
  } else if (!options.duration.has_value()) {
    options.requests = options.clients * 8;
  }
  return options;
}

// All but the vocabulary, which the target knows.
absl::StatusOr<WorkloadOptions> ReadWorkload(const BenchFlags& flags,
                                             BenchDescription* description) {
  WorkloadOptions workload;
  description->lengths_file = flags.lengths;
  description->prompt_tokens = flags.prompt_tokens.empty() ? "128" : flags.prompt_tokens;
  description->max_tokens = flags.max_tokens.empty() ? "64" : flags.max_tokens;
  if (!flags.lengths.empty()) {
    ASSIGN_OR_RETURN(workload.lengths, ReadLengthsFile(flags.lengths));
  } else {
    ASSIGN_OR_RETURN(workload.prompt, ReadLength("--prompt-tokens", description->prompt_tokens));
    ASSIGN_OR_RETURN(workload.answer, ReadLength("--max-tokens", description->max_tokens));
  }
  workload.shared_prefix = flags.shared_prefix.value_or(0);
  workload.prefix_groups = flags.prefix_groups.value_or(1);
  workload.distinct = flags.distinct.value_or(0);
  workload.seed = flags.seed.value_or(1);
  workload.rate = flags.rate.value_or(0);
  return workload;
}

// A line of JSON for each request that ended.
class AnswersFile {
 public:
  static absl::StatusOr<AnswersFile> Create(const std::string& path) {
    AnswersFile file(path);
    if (!file.out_.is_open()) {
      return Error(absl::StatusCode::kInvalidArgument, "CANNOT_WRITE", "cannot write " + path)
          .Hint("give --answers a path in a folder that is there");
    }
    return file;
  }

  void Add(uint32_t request, std::string_view text, const RequestEnd& end) {
    Json line = {{"request", request},
                 {"text", text},
                 {"prompt_tokens", end.prompt_tokens},
                 {"generated_tokens", end.generated_tokens},
                 {"cached_tokens", end.cached_tokens}};
    if (!end.status.ok()) line["error"] = Describe(end.status);
    out_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  // Once all are there.
  absl::Status Close() {
    out_.close();
    return out_.fail() ? Error(absl::StatusCode::kInternal, "CANNOT_WRITE",
                               "cannot write " + path_ + " to its end; is the disk full?")
                       : absl::OkStatus();
  }

 private:
  explicit AnswersFile(const std::string& path) : path_(path), out_(path) {}
  std::string path_;
  std::ofstream out_;
};

// The client outlives the target.
struct Endpoint {
  std::unique_ptr<sdk::Client> client;
  std::unique_ptr<LoadTarget> target;
};

absl::StatusOr<Endpoint> ConnectCluster(const Context& context, const BenchFlags& flags,
                                        WorkloadOptions* workload) {
  Endpoint endpoint;
  ASSIGN_OR_RETURN(endpoint.client, context.Connect());
  ASSIGN_OR_RETURN(const v1::Model model, endpoint.client->GetModel(flags.model));
  if (model.vocab_size() == 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "UNKNOWN_VOCABULARY",
                 "the coordinator does not say how many tokens " + flags.model + " knows")
        .Hint("see `strata model show " + flags.model + "`");
  }
  workload->vocab_size = model.vocab_size();
  endpoint.target = std::make_unique<ClusterTarget>(*endpoint.client, flags.model);
  return endpoint;
}

absl::StatusOr<Endpoint> ConnectOpenAi(const Context& context, const BenchFlags& flags,
                                       const sdk::Cancellation& cancellation,
                                       WorkloadOptions* workload, BenchDescription* description) {
  OpenAiOptions options{.url = flags.openai,
                        .model = flags.model,
                        .api_key = flags.api_key,
                        .ca_file = flags.ca,
                        .text_only = flags.text};
  // Not STRATA_API_KEY: that is the cluster's secret, and the server may be anybody's.
  if (options.api_key.empty() && context.environment().variable) {
    options.api_key = context.environment().variable("OPENAI_API_KEY").value_or("");
  }
  auto target = OpenAiTarget::Connect(options, [&] { return cancellation.cancelled(); });
  if (ReasonOf(target.status()) == "BAD_URL") {
    return UsageError("--openai: " + std::string(target.status().message()));
  }
  RETURN_IF_ERROR(target.status());
  workload->vocab_size = flags.vocab_size.value_or(kOpenAiVocab);
  description->target = flags.openai;
  description->text_prompts = !(*target)->dialect().token_ids;
  return Endpoint{.client = nullptr, .target = *std::move(target)};
}

absl::Status Bench(const Context& context, const BenchFlags& flags) {
  RETURN_IF_ERROR(CheckFlags(flags));
  ASSIGN_OR_RETURN(LoadOptions options, ReadLoad(flags));
  BenchDescription description;
  ASSIGN_OR_RETURN(WorkloadOptions shape, ReadWorkload(flags, &description));
  std::optional<AnswersFile> answers;
  if (!flags.answers.empty()) {
    ASSIGN_OR_RETURN(answers, AnswersFile::Create(flags.answers));
    options.on_answer = [&](uint32_t request, std::string_view text, const RequestEnd& end) {
      answers->Add(request, text, end);
    };
  }
  const sdk::Cancellation cancellation;
  const OnInterrupt on_interrupt(context, [cancellation] { cancellation.Cancel(); });
  ASSIGN_OR_RETURN(const Endpoint endpoint,
                   flags.openai.empty()
                       ? ConnectCluster(context, flags, &shape)
                       : ConnectOpenAi(context, flags, cancellation, &shape, &description));
  const Workload workload(std::move(shape));
  const bool terminal = context.environment().err_is_terminal;
  const LoadReport report = RunLoad(
      workload, options, SystemClock(), endpoint.target.get(),
      [&] { return cancellation.cancelled(); },
      [&](const LoadProgress& progress) {
        if (terminal) {
          context.err() << "\r\x1b[2K" << ProgressLine(progress, options) << std::flush;
        }
      });
  if (terminal) {
    context.err() << "\n";
  }
  if (answers.has_value()) {
    RETURN_IF_ERROR(answers->Close());
  }
  if (cancellation.cancelled()) {
    return Error(absl::StatusCode::kCancelled, "CANCELLED",
                 "cancelled; the figures of half a run would not be true");
  }
  if (context.json()) {
    WriteJson(BenchDocument(description, workload, options, report), &context.out());
  } else {
    PrintBench(description, workload, options, report, &context.out());
  }
  if (report.failed > 0) {
    return Annotate(report.first_error, Counted(report.failed, "request") + " of " +
                                            std::to_string(report.requests) +
                                            " failed, the first with");
  }
  return absl::OkStatus();
}

void AddLoadOptions(CLI::App* app, BenchFlags* flags) {
  AddCount(app, "--clients", &flags->clients, 1, kMaxClients,
           "Requests at a time; default 4, with --rate the most\nat a time, default 1024");
  AddFloat(app, "--rate", &flags->rate, {.min = 0, .max = 1e6F, .min_excluded = true},
           "Open loop: requests a second, as a Poisson process")
      ->type_name("R");
  AddCount(app, "--requests", &flags->requests, 1, 1u << 30,
           "Requests in all; default 8 for each client, or what\n--duration and --rate make");
  AddText(app, "--duration", &flags->duration, "TIME",
          "Begin requests for so long; default with --rate 30s");
  AddText(app, "--ramp", &flags->ramp, "TIME",
          "Let the clients begin evenly over so long; default all at\nonce");
  AddText(app, "--prompt-tokens", &flags->prompt_tokens, "LENGTH",
          "Length of each prompt; default 128");
  AddText(app, "--max-tokens", &flags->max_tokens, "LENGTH", "Length of each answer; default 64");
  AddText(app, "--lengths", &flags->lengths, "FILE",
          "Both, from lines of PROMPT,ANSWER that are taken in turn");
  AddCount(app, "--shared-prefix", &flags->shared_prefix, 0, kMaxContextTokens,
           "Tokens in front of each prompt, the same in each group");
  AddCount(app, "--prefix-groups", &flags->prefix_groups, 1, 1u << 30,
           "Groups that requests take in turn; default 1");
  AddCount(app, "--distinct", &flags->distinct, 1, 1u << 30,
           "Requests repeat after so many; default never");
  AddCount(app, "--seed", &flags->seed, 0, std::numeric_limits<uint64_t>::max(),
           "Names the load: prompts, lengths, arrivals; default 1");
  AddText(app, "--target-ttft", &flags->target_ttft, "TIME",
          "A good request's first token comes within this");
  AddText(app, "--target-itl", &flags->target_itl, "TIME",
          "A good request's mean time between tokens is at most this");
  AddText(app, "--answers", &flags->answers, "FILE",
          "Write each answer to it, a line of JSON with request,\ntext, token counts, error");
}

void AddOpenAiOptions(CLI::App* app, BenchFlags* flags) {
  AddText(app, "--openai", &flags->openai, "URL",
          "Load this server instead of the cluster, by POST\n/v1/completions; MODEL is its name "
          "there");
  AddText(app, "--api-key", &flags->api_key, "KEY",
          "For it (environment: OPENAI_API_KEY, which others on\nthis machine do not see)");
  AddText(app, "--ca", &flags->ca, "FILE",
          "Who signed its certificate, in PEM, beside the system's\nauthorities; of a coordinator "
          "ca.pem of --tls-dir");
  AddCount(app, "--vocab-size", &flags->vocab_size, 1, kMaxVocabSize,
           "Prompts' token ids are below this; default 32000");
  app->add_flag("--text", flags->text,
                "Prompts of as many words; default only if the server\ntakes no token ids");
}

}  // namespace

void AddBenchCommand(CommandTree* tree) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* app = tree->AddLeaf(
      tree->root(), "bench", "Load the whole cluster and measure what clients see",
      "  strata bench recall --clients 16 --requests 200 --json\n"
      "  strata bench recall --rate 5 --duration 60s --prompt-tokens 1-1500 --max-tokens 1-500\n"
      "  strata bench recall --clients 64 --shared-prefix 1000 --target-ttft 500ms\n"
      "  strata bench tiny --openai http://127.0.0.1:8080 --clients 8\n"
      "Closed loop: each client sends its next request when the one before was answered. Open\n"
      "loop (--rate): requests come when they come; each one's latency counts from there.\n"
      "A LENGTH is 128, 1-1500 (uniform), or lognormal:200,1.0,1500 (median, sigma of the\n"
      "logarithm, largest). Prompts are random token ids, answers greedy and of full length\n"
      "(with --openai where the server has ignore_eos). Any failure makes the exit code 1.\n"
      "--json: prompt_tokens_per_s, generated_tokens_per_s, requests_per_s; ttft_ms,\n"
      "inter_token_ms, request_ms, late_ms (sent after they were due), each with p50, p95, p99;\n"
      "requests, failed, refused (of those: RESOURCE_EXHAUSTED or 429), failures (reason, count,\n"
      "example), with targets good and good_requests_per_s, generated_tokens, cached_tokens, and\n"
      "the load as it was asked for.",
      [flags](Context& context) { return Bench(context, *flags); });
  AddRequired(app, "MODEL", &flags->model, "A loaded model");
  AddLoadOptions(app, flags.get());
  AddOpenAiOptions(app, flags.get());
}

}  // namespace strata::cli
