// strata chat.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/options.h"
#include "common/status.h"
#include "common/thought_limits.h"

namespace strata::cli {
namespace {

struct ChatOptions {
  std::string model;
  std::optional<std::string> message;
  std::string system;
  std::string tools;  // A file.
  std::string tool_choice;
  std::optional<uint32_t> thought_budget;
  AnswerOptions answer;
};

void ApplyToolChoice(const std::string& choice, sdk::GenerateRequest* request) {
  const bool word = choice.empty() || choice == "auto" || choice == "none" || choice == "required";
  request->tool_choice = word ? choice : "tool";
  if (!word) request->tool_name = choice;
}

// Each tool of the JSON list in `path`, as text.
absl::StatusOr<std::vector<std::string>> ReadTools(const std::string& path) {
  std::vector<std::string> tools;
  if (path.empty()) {
    return tools;
  }
  std::ifstream file(path);
  const auto list = nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) {
    return UsageError("--tools " + path + " is no file that holds a JSON list of tools");
  }
  for (const auto& tool : list) {
    tools.push_back(tool.dump());
  }
  return tools;
}

class Chat {
 public:
  Chat(const Context& context, const ChatOptions& options, std::vector<std::string> tools,
       std::unique_ptr<sdk::Client> client)
      : context_(context), options_(options), tools_(std::move(tools)), client_(std::move(client)) {
    Reset();
  }

  void Reset() {
    messages_.clear();
    due_results_.clear();
    if (!options_.system.empty()) {
      messages_.push_back({.role = "system", .content = options_.system});
    }
  }

  // Whether the next line is what a tool gave.
  bool wants_result() const { return !due_results_.empty(); }

  // Asks, prints the answer and remembers both. A question that fails is forgotten. Behind an
  // answer that calls tools it is the result of the first call, and so on: with the last one of
  // them the conversation goes on.
  absl::Status Ask(const std::string& question) {
    sdk::GenerateRequest request;
    sdk::CallOptions call;
    request.model = options_.model;
    RETURN_IF_ERROR(options_.answer.Apply(&request, &call));
    request.tools = tools_;
    // Once there are results the model decides.
    if (due_results_.empty()) ApplyToolChoice(options_.tool_choice, &request);
    request.thought_budget_tokens = options_.thought_budget;
    const std::vector<std::string> due = due_results_;
    if (due_results_.empty()) {
      messages_.push_back({.role = "user", .content = question});
    } else {
      messages_.push_back(
          {.role = "tool", .content = question, .tool_call_id = due_results_.front()});
      due_results_.erase(due_results_.begin());
      if (!due_results_.empty()) {
        return absl::OkStatus();
      }
    }
    request.prompt = messages_;
    const auto generation = StreamAnswer(context_, client_.get(), request, call, nullptr);
    if (!generation.ok()) {
      messages_.pop_back();
      due_results_ = due;
      return generation.status();
    }
    messages_.push_back({.role = "assistant",
                         .content = generation->text,
                         .tool_calls = generation->tool_calls,
                         .thought = generation->thought});
    for (const sdk::ToolCall& call : generation->tool_calls) {
      due_results_.push_back(call.id);
    }
    if (context_.json()) {
      WriteJson(GenerationDocument(*generation, false, false), &context_.out());
    } else if (context_.environment().err_is_terminal) {
      context_.err() << "(" << AnswerSummary(*generation) << ")\n";
    }
    return CheckNotCancelled(*generation);
  }

 private:
  const Context& context_;
  const ChatOptions& options_;
  const std::vector<std::string> tools_;
  const std::unique_ptr<sdk::Client> client_;
  std::vector<sdk::ChatMessage> messages_;
  std::vector<std::string> due_results_;  // Ids of calls.
};

// A message a line until stdin ends.
absl::Status Converse(const Context& context, const std::string& model, Chat* chat) {
  const bool person = context.environment().in_is_terminal;
  if (person) {
    context.err() << "Talking to " << model
                  << ". /reset begins anew; Ctrl-C stops an answer; /quit or Ctrl-D ends.\n";
  }
  std::string line;
  while (true) {
    if (person) {
      context.err() << (chat->wants_result() ? "result> " : "> ") << std::flush;
    }
    if (!std::getline(*context.environment().in, line) || line == "/quit") {
      return absl::OkStatus();
    }
    if (line == "/reset") {
      chat->Reset();
      continue;
    }
    if (line.empty()) {
      continue;
    }
    absl::Status status = chat->Ask(line);
    if (!status.ok() && !person) {
      return status;
    }
    if (!status.ok()) {
      context.err() << "strata: " << Describe(status) << "\n";
    }
  }
}

}  // namespace

void AddChatCommand(CommandTree* tree) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* app = tree->AddLeaf(
      tree->root(), "chat", "Ask a model, once or in a conversation",
      "  strata chat recall \"Hello\"\n"
      "  strata chat recall --system \"Answer in one word.\"\n"
      "Without MESSAGE it is a conversation: one message a line from stdin, until Ctrl-D; with\n"
      "--json one document a line.",
      [options](Context& context) -> absl::Status {
        if (options->message.has_value() && options->message->empty()) {
          return UsageError("MESSAGE must not be empty");
        }
        sdk::GenerateRequest checked;
        sdk::CallOptions call;
        RETURN_IF_ERROR(options->answer.Apply(&checked, &call));
        if (!options->message.has_value() && !checked.request_id.empty()) {
          return UsageError("--request-id names one request; a conversation has many");
        }
        ASSIGN_OR_RETURN(std::vector<std::string> tools, ReadTools(options->tools));
        ASSIGN_OR_RETURN(auto client, context.Connect());
        Chat chat(context, *options, std::move(tools), std::move(client));
        return options->message.has_value() ? chat.Ask(*options->message)
                                            : Converse(context, options->model, &chat);
      });
  AddModelName(app, "MODEL", &options->model, "A loaded model with a chat template");
  app->add_option_function<std::string>(
         "MESSAGE", [options](const std::string& text) { options->message = text; },
         "What to ask; none: a conversation")
      ->type_name("");
  app->add_option("--system", options->system, "What the model is told first")->type_name("TEXT");
  app->add_option("--tools", options->tools,
                  "What it may call: a JSON list as OpenAI's API has it. In a conversation the\n"
                  "lines behind an answer with calls are their results")
      ->type_name("FILE");
  AddText(app, "--tool-choice", &options->tool_choice, "NAME",
          "auto, none, required, or the tool that is to be called;\ndefault auto");
  AddCount(app, "--thought-budget", &options->thought_budget, 0, kMaxThoughtBudget,
           "Most tokens that it thinks; behind them it answers");
  options->answer.AddTo(app);
}

}  // namespace strata::cli
