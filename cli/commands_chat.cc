// strata chat.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/options.h"
#include "common/status.h"

namespace strata::cli {
namespace {

struct ChatOptions {
  std::string model;
  std::optional<std::string> message;
  std::string system;
  AnswerOptions answer;
};

class Chat {
 public:
  Chat(const Context& context, const ChatOptions& options, std::unique_ptr<sdk::Client> client)
      : context_(context), options_(options), client_(std::move(client)) {
    Reset();
  }

  void Reset() {
    messages_.clear();
    if (!options_.system.empty()) {
      messages_.push_back({"system", options_.system});
    }
  }

  // Asks, prints the answer and remembers both. A question that fails is forgotten.
  absl::Status Ask(const std::string& question) {
    sdk::GenerateRequest request;
    sdk::CallOptions call;
    request.model = options_.model;
    RETURN_IF_ERROR(options_.answer.Apply(&request, &call));
    messages_.push_back({"user", question});
    request.prompt = messages_;
    const auto generation = StreamAnswer(context_, client_.get(), request, call, nullptr);
    if (!generation.ok()) {
      messages_.pop_back();
      return generation.status();
    }
    messages_.push_back({"assistant", generation->text});
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
  const std::unique_ptr<sdk::Client> client_;
  std::vector<sdk::ChatMessage> messages_;
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
      context.err() << "> " << std::flush;
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
        ASSIGN_OR_RETURN(auto client, context.Connect());
        Chat chat(context, *options, std::move(client));
        return options->message.has_value() ? chat.Ask(*options->message)
                                            : Converse(context, options->model, &chat);
      });
  AddModelName(app, "MODEL", &options->model, "A loaded model with a chat template");
  app->add_option_function<std::string>(
         "MESSAGE", [options](const std::string& text) { options->message = text; },
         "What to ask; none: a conversation")
      ->type_name("");
  app->add_option("--system", options->system, "What the model is told first")->type_name("TEXT");
  options->answer.AddTo(app);
}

}  // namespace strata::cli
