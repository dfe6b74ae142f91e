#include "coordinator/service/request/chat_answer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/thought_limits.h"
#include "text/tools/answer_reader.h"
#include "text/tools/marked_text.h"

namespace strata {
namespace {

constexpr size_t kPromptEndBytes = 64;
// The end of a prompt behind which a message's header comes.
constexpr std::string_view kBeginsMessage = "<|start|>assistant";

absl::Status BadChoice(const std::string& wanted) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD", "tool_choice must be " + wanted)
      .Fact("field", "tool_choice");
}

absl::Status NoTools(const ModelRuntime& model, const std::string& why, const std::string& hint) {
  return Error(absl::StatusCode::kInvalidArgument, "NOT_SUPPORTED",
               "model '" + model.name + "' cannot be given tools: " + why)
      .Fact("field", "tools")
      .Hint(hint);
}

}  // namespace

bool BeginsThought(const ChatAnswer& answer, const ThoughtFormat& format) {
  const size_t last = format.open.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos &&
         answer.prompt_end.ends_with(format.open.substr(0, last + 1));
}

bool IsSpecialToken(const Tokenizer& tokenizer, uint32_t id) {
  const uint32_t ids[] = {id};
  return tokenizer.Decode(ids, /*skip_special_tokens=*/true).empty() &&
         !tokenizer.Decode(ids, /*skip_special_tokens=*/false).empty();
}

absl::StatusOr<ChatAnswer> ChatAnswerOf(const v1::ChatInput& chat, const ModelRuntime& model,
                                        std::string_view prompt) {
  ChatAnswer answer;
  answer.one_call = chat.one_tool_call();
  if (chat.has_thought_budget_tokens()) {
    answer.thought_budget_tokens = chat.thought_budget_tokens();
    if (chat.thought_budget_tokens() > kMaxThoughtBudget) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD",
                   "thought_budget_tokens is " + std::to_string(chat.thought_budget_tokens()))
          .Limit("thought_budget_tokens=0.." + std::to_string(kMaxThoughtBudget))
          .Fact("field", "thought_budget_tokens");
    }
  }
  const std::string& choice = chat.tool_choice();
  if (!choice.empty() && choice != "auto" && choice != "none" && choice != "required" &&
      choice != "tool") {
    return BadChoice("\"auto\", \"none\", \"required\" or \"tool\"");
  }
  if ((choice == "tool") != !chat.tool_name().empty()) {
    return BadChoice("\"tool\" where a tool is named, and there alone");
  }
  answer.must_call = choice == "required" || choice == "tool";
  if (answer.must_call && chat.tools().empty()) {
    return BadChoice("left out, \"auto\" or \"none\" where there are no tools");
  }
  answer.only = chat.tool_name();
  answer.one_call = answer.one_call || choice == "tool";
  if (chat.tools_size() > 0) {
    ASSIGN_OR_RETURN(auto offered, OfferedTools::Parse({chat.tools().begin(), chat.tools().end()}));
    if (!answer.only.empty() && !offered->Has(answer.only)) {
      return BadChoice("one of the tools; there is none of that name");
    }
    if (choice != "none") {
      if (model.manifest->chat_template.find("tools") == std::string::npos) {
        return NoTools(model, "its chat template does not show any",
                       "leave them out, or load a model that was trained to call tools");
      }
      answer.offered = std::move(offered);
    }
  }
  prompt = prompt.substr(0, BlanksAtEnd(prompt));
  answer.prompt_end = prompt.substr(prompt.size() - std::min(prompt.size(), kPromptEndBytes));
  return answer;
}

absl::StatusOr<const ToolFormat*> ToolFormatOf(const ModelRuntime& model,
                                               const v1::LoadOptions& options) {
  ASSIGN_OR_RETURN(const ToolFormat* const format,
                   ChooseToolFormat(options.tool_format(), model.manifest->chat_template));
  if (format == nullptr) {
    return NoTools(model, "how it writes calls is not known",
                   "load it with --tool-format and the name of its format");
  }
  return format;
}

absl::StatusOr<const ToolFormat*> ChannelsOf(const ModelRuntime& model,
                                             const v1::LoadOptions& options,
                                             const ChatAnswer& answer) {
  const std::string& chat_template = model.manifest->chat_template;
  ASSIGN_OR_RETURN(const ThoughtFormat* const thoughts,
                   ChooseThoughtFormat(options.reasoning_format(), chat_template));
  ASSIGN_OR_RETURN(const ToolFormat* const tools,
                   ChooseToolFormat(options.tool_format(), chat_template));
  const bool calls =
      answer.offered != nullptr && tools != nullptr && tools->body == ToolFormat::Body::kHarmony;
  if (!calls && (thoughts == nullptr || !thoughts->open.empty())) {
    return nullptr;
  }
  return answer.prompt_end.ends_with(kBeginsMessage) ? ChooseToolFormat("harmony", "")
                                                     : absl::StatusOr<const ToolFormat*>(nullptr);
}

std::optional<uint32_t> SpecialTokenOf(const Tokenizer& tokenizer, std::string_view name) {
  const auto id = tokenizer.TokenToId(name);
  return id.has_value() && IsSpecialToken(tokenizer, *id) ? id : std::nullopt;
}

absl::Status CheckAnswerFormats(const v1::LoadOptions& options) {
  RETURN_IF_ERROR(ChooseToolFormat(options.tool_format(), "").status());
  return ChooseThoughtFormat(options.reasoning_format(), "").status();
}

absl::StatusOr<std::unique_ptr<ChatReader>> ChatReader::Make(const ModelRuntime& model,
                                                             const v1::LoadOptions& options,
                                                             const ChatAnswer& answer,
                                                             std::string id_seed) {
  const std::string& chat_template = model.manifest->chat_template;
  AnswerReaderOptions reading;
  ASSIGN_OR_RETURN(reading.thoughts,
                   ChooseThoughtFormat(options.reasoning_format(), chat_template));
  if (answer.offered != nullptr) {
    ASSIGN_OR_RETURN(reading.tools, ToolFormatOf(model, options));
    reading.offered = answer.offered;
  }
  const Tokenizer* const tokenizer = model.tokenizer.get();
  if (tokenizer == nullptr || (reading.tools == nullptr && reading.thoughts == nullptr)) {
    return nullptr;
  }
  reading.one_call = answer.one_call;
  reading.id_seed = std::move(id_seed);
  reading.is_special = [tokenizer](std::string_view text) {
    return SpecialTokenOf(*tokenizer, text).has_value();
  };
  reading.in_thought = reading.thoughts != nullptr && BeginsThought(answer, *reading.thoughts);
  reading.behind_thought = reading.thoughts != nullptr && !reading.thoughts->close.empty() &&
                           answer.prompt_end.ends_with(reading.thoughts->close);
  const bool holds_calls = answer.offered != nullptr && answer.offered->HasStrict();
  return std::unique_ptr<ChatReader>(
      new ChatReader(tokenizer, std::make_unique<AnswerReader>(std::move(reading)), holds_calls));
}

ChatReader::ChatReader(const Tokenizer* tokenizer, std::unique_ptr<AnswerReader> reader,
                       bool holds_calls)
    : tokenizer_(tokenizer), reader_(std::move(reader)), holds_calls_(holds_calls) {}

ChatReader::~ChatReader() = default;

void ChatReader::Finish() { reader_->Finish(); }
bool ChatReader::in_thought() const { return reader_->in_thought(); }
bool ChatReader::in_call() const { return reader_->in_call(); }
bool ChatReader::calls() const { return reader_->whole_calls() > 0; }
bool ChatReader::full() const { return reader_->full(); }

bool ChatReader::IsToken(uint32_t id) const { return IsSpecialToken(*tokenizer_, id); }

void ChatReader::Add(std::string_view text) {
  if (!text.empty()) reader_->Add(text);
}

void ChatReader::AddToken(uint32_t id) {
  const uint32_t ids[] = {id};
  reader_->AddToken(tokenizer_->Decode(ids, /*skip_special_tokens=*/false));
}

void ChatReader::Tell(v1::GenerateResponse* response) {
  using Kind = AnswerEvent::Kind;
  for (AnswerEvent& event : reader_->Take()) {
    if (event.kind == Kind::kText) {
      response->mutable_text()->append(event.text);
      continue;
    }
    if (event.kind == Kind::kThought) {
      response->mutable_thought()->append(event.text);
      continue;
    }
    const bool begins = event.kind == Kind::kCall;
    if (event.kind == Kind::kCallEnd && !event.whole) {
      continue;  // Whose last piece is missing.
    }
    const auto index = static_cast<uint32_t>(event.call);
    const int count = response->tool_calls_size();
    v1::ToolCallPiece* piece =
        !begins && count > 0 && response->tool_calls(count - 1).index() == index
            ? response->mutable_tool_calls(count - 1)
            : response->add_tool_calls();
    piece->set_index(index);
    if (begins) {
      piece->set_id(std::move(event.id));
      piece->set_name(std::move(event.name));
    }
    piece->mutable_arguments()->append(event.text);
    piece->set_done(event.kind == Kind::kCallEnd);
  }
}

}  // namespace strata
