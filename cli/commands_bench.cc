// strata bench.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/limits.h"
#include "common/status.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

struct BenchFlags {
  std::string model;
  std::optional<uint32_t> clients;
  std::optional<uint32_t> requests;
  std::optional<uint32_t> prompt_tokens;
  std::optional<uint32_t> max_tokens;
};

Json PercentilesDocument(const Percentiles& percentiles) {
  return {{"p50", percentiles.p50}, {"p95", percentiles.p95}, {"p99", percentiles.p99}};
}

void WriteResult(const Context& context, const BenchOptions& options, const BenchResult& result) {
  if (context.json()) {
    WriteJson({{"prompt_tokens_per_s", result.prompt_tokens_per_s},
               {"generated_tokens_per_s", result.generated_tokens_per_s},
               {"ttft_ms", PercentilesDocument(result.ttft_ms)},
               {"inter_token_ms", PercentilesDocument(result.inter_token_ms)},
               {"requests", result.requests},
               {"failed", result.failed},
               {"clients", options.clients},
               {"prompt_tokens", options.prompt_tokens},
               {"max_tokens", options.max_tokens},
               {"wall_s", result.wall_s},
               {"numerics_class", result.numerics_class}},
              &context.out());
    return;
  }
  std::ostream& out = context.out();
  out << Counted(result.requests, "request") << " by " << Counted(options.clients, "client")
      << " in " << Rounded(result.wall_s) << " s, " << result.failed << " failed; "
      << options.prompt_tokens << " prompt + " << options.max_tokens << " generated tokens each\n"
      << "  prompt     " << Rounded(result.prompt_tokens_per_s) << " tokens/s over the whole time\n"
      << "  generated  " << Rounded(result.generated_tokens_per_s) << " tokens/s\n\n";
  Table table({"MILLISECONDS", ">P50", ">P95", ">P99"});
  table.AddRow({"first token", Rounded(result.ttft_ms.p50), Rounded(result.ttft_ms.p95),
                Rounded(result.ttft_ms.p99)});
  table.AddRow({"between tokens", Rounded(result.inter_token_ms.p50),
                Rounded(result.inter_token_ms.p95), Rounded(result.inter_token_ms.p99)});
  table.Print(&out);
}

absl::Status Bench(const Context& context, const BenchFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::Model model, client->GetModel(flags.model));
  if (model.vocab_size() == 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "UNKNOWN_VOCABULARY",
                 "the coordinator does not say how many tokens " + flags.model + " knows")
        .Hint("see `strata model show " + flags.model + "`");
  }
  BenchOptions options;
  options.model = flags.model;
  options.clients = flags.clients.value_or(4);
  options.requests = flags.requests.value_or(options.clients * 8);
  options.prompt_tokens = flags.prompt_tokens.value_or(128);
  options.max_tokens = flags.max_tokens.value_or(64);
  options.vocab_size = model.vocab_size();
  const sdk::Cancellation cancellation;
  const OnInterrupt on_interrupt(context, [cancellation] { cancellation.Cancel(); });
  const bool terminal = context.environment().err_is_terminal;
  const BenchResult result = RunBench(client.get(), options, cancellation, [&](uint32_t done) {
    if (terminal) {
      context.err() << "\r\x1b[2K" << done << " of " << options.requests << " requests"
                    << (done == options.requests ? "\n" : "") << std::flush;
    }
  });
  if (cancellation.cancelled()) {
    return Error(absl::StatusCode::kCancelled, "CANCELLED",
                 "cancelled; the figures of half a run would not be true");
  }
  WriteResult(context, options, result);
  if (result.failed > 0) {
    return Annotate(result.first_error, Counted(result.failed, "request") + " of " +
                                            std::to_string(result.requests) +
                                            " failed, the first with");
  }
  return absl::OkStatus();
}

}  // namespace

void AddBenchCommand(CommandTree* tree) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* app = tree->AddLeaf(
      tree->root(), "bench", "Load the whole cluster and measure what clients see",
      "  strata bench recall\n  strata bench recall --clients 16 --requests 200 --json\n"
      "Each client sends its next request when the one before was answered. Prompts are random\n"
      "token ids, answers greedy and of full length.",
      [flags](Context& context) { return Bench(context, *flags); });
  AddRequired(app, "MODEL", &flags->model, "A loaded model");
  AddCount(app, "--clients", &flags->clients, 1, 4096, "Requests at a time; default 4");
  AddCount(app, "--requests", &flags->requests, 1, 1u << 30,
           "Requests in all; default 8 for each client");
  AddCount(app, "--prompt-tokens", &flags->prompt_tokens, 1, kMaxContextTokens,
           "Length of each prompt; default 128");
  AddCount(app, "--max-tokens", &flags->max_tokens, 1, kMaxContextTokens,
           "Length of each answer; default 64");
}

}  // namespace strata::cli
