// strata generate.
#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/embeddings_file.h"
#include "cli/logits_file.h"
#include "cli/options.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/units.h"

namespace strata::cli {
namespace {

struct GenerateOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::string token_ids;
  std::string input_embeds;
  AnswerOptions answer;
  bool ignore_eos = false;
  bool replace = false;
  bool guaranteed = false;
  int32_t priority = 0;
  std::optional<uint32_t> logprobs;
  std::optional<uint32_t> prompt_logprobs;
  std::string logits;
};

absl::StatusOr<sdk::Prompt> ReadPrompt(const Context& context, const GenerateOptions& options) {
  if (options.prompt.has_value() && !options.token_ids.empty()) {
    return UsageError("PROMPT and --token-ids exclude each other");
  }
  if (!options.token_ids.empty()) {
    ASSIGN_OR_RETURN(std::vector<uint32_t> ids, ParseIds(options.token_ids));
    return sdk::Prompt(std::move(ids));
  }
  if (!options.prompt.has_value()) {
    return UsageError("a PROMPT is missing (or --token-ids 1,2,3; - reads stdin)");
  }
  if (*options.prompt == "-") {
    return sdk::Prompt(std::string(std::istreambuf_iterator<char>(*context.environment().in), {}));
  }
  return sdk::Prompt(*options.prompt);
}

void PrintLogprobs(const std::string& title, const std::vector<sdk::TokenLogprob>& logprobs,
                   std::ostream& out) {
  Table table({">TOKEN", ">LOGPROB", "MOST PROBABLE"});
  for (const sdk::TokenLogprob& logprob : logprobs) {
    std::string top;
    for (const auto& [id, value] : logprob.top) {
      top += (top.empty() ? "" : "  ") + std::to_string(id) + ":" + FormatFloat(value);
    }
    table.AddRow({std::to_string(logprob.token_id), FormatFloat(logprob.logprob), top});
  }
  out << '\n' << title << '\n';
  table.Print(&out, "  ");
}

absl::Status Generate(const Context& context, const GenerateOptions& options) {
  sdk::GenerateRequest request;
  sdk::CallOptions call;
  request.model = options.model;
  ASSIGN_OR_RETURN(request.prompt, ReadPrompt(context, options));
  if (!options.input_embeds.empty()) {
    ASSIGN_OR_RETURN(request.input_embeddings, ReadEmbeddingsFile(options.input_embeds));
  }
  RETURN_IF_ERROR(options.answer.Apply(&request, &call));
  request.ignore_eos = options.ignore_eos;
  request.replace = options.replace;
  request.guaranteed = options.guaranteed;
  request.priority = options.priority;
  request.logprobs = options.logprobs;
  request.prompt_logprobs = options.prompt_logprobs;
  request.return_logits = !options.logits.empty();
  LogitsFile logits(options.logits);
  if (request.return_logits) {
    RETURN_IF_ERROR(logits.Open());
  }
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const sdk::Generation generation,
                   StreamAnswer(context, client.get(), request, call, [&](const sdk::Piece& piece) {
                     return request.return_logits && piece.logits_columns > 0
                                ? logits.Append(piece.logits, piece.logits_columns)
                                : absl::OkStatus();
                   }));
  if (request.return_logits) {
    RETURN_IF_ERROR(logits.Finish());
  }
  if (context.json()) {
    WriteJson(GenerationDocument(generation, options.logprobs.has_value(),
                                 options.prompt_logprobs.has_value()),
              &context.out());
    return CheckNotCancelled(generation);
  }
  if (options.prompt_logprobs.has_value()) {
    PrintLogprobs("Prompt, from its second token on", generation.prompt_logprobs, context.out());
  }
  if (options.logprobs.has_value()) {
    PrintLogprobs("Generated", generation.logprobs, context.out());
  }
  if (context.environment().err_is_terminal) {
    context.err() << "(" << AnswerSummary(generation) << ")\n";
  }
  return CheckNotCancelled(generation);
}

}  // namespace

void AddGenerateCommand(CommandTree* tree) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* app = tree->AddLeaf(
      tree->root(), "generate", "Complete a prompt, streamed to stdout",
      "  strata generate recall \"Once upon a time\" --max-tokens 50\n"
      "  echo \"Once upon a time\" | strata generate recall - --temperature 0\n"
      "  strata generate recall --token-ids 1,2,3 --json --logprobs 5\n"
      "Ctrl-C cancels the request. The prompt goes to the model as it is: `strata chat recall`\n"
      "applies the chat template.",
      [options](Context& context) { return Generate(context, *options); });
  AddModelName(app, "MODEL", &options->model, "A loaded model");
  app->add_option_function<std::string>(
         "PROMPT", [options](const std::string& text) { options->prompt = text; },
         "The text to go on from; - reads stdin")
      ->type_name("");
  app->add_option("--token-ids", options->token_ids, "The prompt as token ids instead of text")
      ->type_name("1,2,3");
  app->add_option("--input-embeds", options->input_embeds,
                  "Rows that replace the embeddings of prompt tokens (safetensors: `embeddings`\n"
                  "[rows, hidden size], `positions` [rows]; without those the first ones)")
      ->type_name("FILE");
  options->answer.AddTo(app);
  app->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end of the answer")
      ->group("Answer");
  app->add_flag("--replace", options->replace, "Cancel a running request of the same id")
      ->group("Answer");
  app->add_flag("--guaranteed", options->guaranteed,
                "Start only with KV memory for all of --max-tokens, and never give it up")
      ->group("Answer");
  app->add_option("--priority", options->priority,
                  "Higher ones start first, and keep their KV memory longer (default 0)")
      ->type_name("N")
      ->group("Answer");
  AddCount(app, "--logprobs", &options->logprobs, 0, kMaxTopLogprobs,
           "Log-probabilities of generated tokens, and the N best")
      ->group("What is reported");
  AddCount(app, "--prompt-logprobs", &options->prompt_logprobs, 0, kMaxTopLogprobs,
           "Likewise of the prompt's tokens")
      ->group("What is reported");
  app->add_option("--logits", options->logits,
                  "Write the raw logits of every position there (safetensors)")
      ->type_name("FILE")
      ->group("What is reported");
}

}  // namespace strata::cli
