#include "coordinator/service/request/chat_prompt.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "nlohmann/json.hpp"
#include "text/template/conversation.h"
#include "text/tools/ordered_json.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

// Stands behind the content of a last message that the answer goes on with, to find its end; a
// blank behind it shows whether the template trims contents.
constexpr std::string_view kContinued = "<strata-goes-on-here/>";

absl::Status BadChat(const std::string& field, const std::string& wanted) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD", field + " must be " + wanted)
      .Fact("field", field);
}

Json ArgumentsOf(const std::string& text, bool as_text) {
  if (as_text) {
    return text.empty() ? "{}" : text;
  }
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) {
    return Json::object();
  }
  absl::StatusOr<Json> arguments = ParseOrderedJson(text, "arguments");
  // What a cut answer left, or what is too large to be read, is shown as it was.
  return arguments.ok() && arguments->is_object() ? *std::move(arguments) : Json(text);
}

Json MessageOf(const v1::ChatMessage& message, bool arguments_as_text) {
  Json fields;
  fields["role"] = message.role();
  if (!message.without_content()) fields["content"] = message.content();
  if (message.has_reasoning_content()) fields["reasoning_content"] = message.reasoning_content();
  if (message.has_thinking()) fields["thinking"] = message.thinking();
  if (message.has_reasoning()) fields["reasoning"] = message.reasoning();
  for (const v1::ToolCall& call : message.tool_calls()) {
    fields["tool_calls"].push_back(
        {{"id", call.id()},
         {"type", "function"},
         {"function",
          {{"name", call.name()},
           {"arguments", ArgumentsOf(call.arguments(), arguments_as_text)}}}});
  }
  if (message.has_tool_call_id()) fields["tool_call_id"] = message.tool_call_id();
  if (message.has_name()) fields["name"] = message.name();
  return fields;
}

bool IsSystem(const Json& message) { return message["role"] == "system"; }

// Several system messages, or one that is not the first.
bool HasLateSystem(const Json& messages) {
  for (size_t i = 1; i < messages.size(); ++i) {
    if (IsSystem(messages[i])) {
      return true;
    }
  }
  return false;
}

Json WithOneSystem(const Json& messages) {
  std::string text;
  Json merged = Json::array({{{"role", "system"}, {"content", ""}}});
  for (const Json& message : messages) {
    if (!IsSystem(message)) {
      merged.push_back(message);
    } else if (const std::string content = message.value("content", ""); !content.empty()) {
      text += (text.empty() ? "" : "\n\n") + content;
    }
  }
  merged[0]["content"] = text;
  return merged;
}

bool LacksContent(const Json& messages) {
  return std::ranges::any_of(messages,
                             [](const Json& message) { return !message.contains("content"); });
}

Json WithContents(Json messages) {
  for (Json& message : messages) {
    if (!message.contains("content")) message["content"] = "";
  }
  return messages;
}

// `rendered` up to where the last message's content ends.
absl::StatusOr<std::string> CutAtContinued(std::string rendered) {
  const size_t found = rendered.rfind(kContinued);
  if (found == std::string::npos) {
    return Error(absl::StatusCode::kInvalidArgument, "NOT_SUPPORTED",
                 "continue_final_message is not supported by this model: its chat template does "
                 "not show the last message's content as it is")
        .Fact("field", "continue_final_message")
        .Hint("leave it out");
  }
  const bool trims = !rendered.substr(found + kContinued.size()).starts_with(' ');
  rendered.resize(found);
  if (trims) rendered.resize(rendered.find_last_not_of(" \n\r\t") + 1);
  return rendered;
}

}  // namespace

bool WantsArgumentsAsText(const ChatTemplate& chat_template) {
  const auto render = [&](const Json& arguments) -> std::string {
    const Json call = {{"id", "call00000"},
                       {"type", "function"},
                       {"function", {{"name", "probe"}, {"arguments", arguments}}}};
    Json variables;
    variables["messages"] = {{{"role", "user"}, {"content", "a"}},
                             {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}}};
    variables["bos_token"] = "";
    variables["eos_token"] = "";
    const auto rendered = chat_template.Render(variables, 0);
    return rendered.ok() ? *rendered : "";
  };
  const std::string object = render({{"probed", "value"}});
  // As Python prints a dict, or not at all.
  const bool written =
      object.find("probed") != std::string::npos && object.find("{'probed'") == std::string::npos;
  return !written && render("{\"probed\": \"value\"}").find("{\"probed\"") != std::string::npos;
}

absl::StatusOr<std::string> RenderChatPrompt(const ChatTemplate& chat_template,
                                             const ChatPromptOptions& options,
                                             const v1::ChatInput& chat, int64_t now) {
  Json variables = Json::object();
  if (!chat.template_arguments().empty()) {
    ASSIGN_OR_RETURN(variables,
                     ParseOrderedJson(chat.template_arguments(), "chat_template_kwargs"));
    if (!variables.is_object()) {
      return BadChat("chat_template_kwargs", "an object");
    }
  }
  Json messages = Json::array();
  for (const v1::ChatMessage& message : chat.messages()) {
    messages.push_back(MessageOf(message, options.arguments_as_text));
  }
  const bool continues = chat.continue_final_message();
  if (continues) {
    if (messages.empty() || !messages.back().contains("content")) {
      return BadChat("continue_final_message", "false where the last message has no content");
    }
    Json& content = messages.back()["content"];
    content = content.get<std::string>() + std::string(kContinued) + " ";
  }
  NormalizeMessages(&messages);
  if (chat.tools_size() > 0 && chat.tool_choice() != "none") {
    Json tools = Json::array();
    for (const std::string& text : chat.tools()) {
      ASSIGN_OR_RETURN(Json tool,
                       ParseOrderedJson(text, "tools[" + std::to_string(tools.size()) + "]"));
      tools.push_back(std::move(tool));
    }
    variables["tools"] = std::move(tools);
  }
  variables["add_generation_prompt"] =
      !continues && (!chat.has_add_generation_prompt() || chat.add_generation_prompt());
  AddTokens(options.tokens, &variables);
  const auto render = [&](Json given) -> absl::StatusOr<std::string> {
    variables["messages"] = std::move(given);
    ASSIGN_OR_RETURN(std::string rendered, chat_template.Render(variables, now));
    return continues ? CutAtContinued(std::move(rendered)) : std::move(rendered);
  };
  const bool late_system = HasLateSystem(messages);
  const bool lacks_content = LacksContent(messages);
  auto rendered = render(messages);
  if (rendered.ok() || (!late_system && !lacks_content)) {
    return rendered;
  }
  Json second = late_system ? WithOneSystem(messages) : messages;
  auto again = render(lacks_content ? WithContents(std::move(second)) : std::move(second));
  return again.ok() ? std::move(again) : std::move(rendered);  // Why it was refused at first.
}

}  // namespace strata
