#include "coordinator/http/chat_messages.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status.h"
#include "common/thought_limits.h"
#include "text/tools/json_text.h"

namespace strata {
namespace {

absl::Status ReadPart(const Json& part, const std::string& place, std::string* out) {
  if (!part.is_object()) {
    return BadField(place, "an object");
  }
  Fields fields(part, place + ".");
  const std::string type = fields.Text("type").value_or("text");
  const bool refusal = type == "refusal";
  const char* const name = refusal ? "refusal" : "text";
  const auto text = fields.Text(name);
  if (!fields.status().ok()) {
    return fields.status();
  }
  if (type != "text" && type != "input_text" && type != "output_text" && !refusal) {
    return NotSupported(place + ".type", "only texts are");
  }
  if (!text.has_value()) {
    return BadField(place + "." + name, "given");
  }
  *out += *text;
  return absl::OkStatus();
}

absl::Status ReadContent(const Json* content, const std::string& name, std::string* out) {
  if (content == nullptr) {
    return BadField(name, "given");
  }
  if (content->is_string()) {
    *out = content->get<std::string>();
    return absl::OkStatus();
  }
  if (!content->is_array()) {
    return BadField(name, "a string, or an array of text parts");
  }
  for (size_t i = 0; i < content->size(); ++i) {
    const absl::Status read = ReadPart((*content)[i], name + "[" + std::to_string(i) + "]", out);
    if (!read.ok()) {
      return read;
    }
  }
  return absl::OkStatus();
}

bool HasReasoning(const v1::ChatMessage& message) {
  return message.has_reasoning_content() || message.has_thinking() || message.has_reasoning();
}

// `ordered`: the call with its keys in order, where its arguments are no text.
absl::Status ReadCall(const Json& json, const std::string& place, const OrderedJson* ordered,
                      v1::ToolCall* call) {
  if (!json.is_object()) {
    return BadField(place, "an object");
  }
  Fields fields(json, place + ".");
  call->set_id(fields.Text("id").value_or(""));
  if (fields.Text("type").value_or("function") != "function") {
    fields.Fail(NotSupported(place + ".type", "only \"function\" is"));
  }
  const Json* function = fields.Object("function");
  if (!fields.status().ok()) {
    return fields.status();
  }
  if (function == nullptr) {
    return BadField(place + ".function", "given");
  }
  Fields inner(*function, place + ".function.");
  const auto name = inner.Text("name");
  if (!inner.status().ok()) {
    return inner.status();
  }
  if (!name.has_value() || name->empty()) {
    return BadField(place + ".function.name", "given");
  }
  call->set_name(*name);
  const Json* arguments = inner.Find("arguments");
  if (arguments == nullptr) {
    call->set_arguments("{}");
  } else if (arguments->is_string()) {
    call->set_arguments(arguments->get<std::string>());
  } else if (arguments->is_object()) {
    call->set_arguments(Dump((*ordered)["function"]["arguments"]));
  } else {
    return BadField(place + ".function.arguments", "a string that holds a JSON object");
  }
  return absl::OkStatus();
}

bool HasObjectArguments(const Json& call) {
  return call.is_object() && call.contains("function") && call["function"].is_object() &&
         call["function"].contains("arguments") && call["function"]["arguments"].is_object();
}

absl::Status ReadCalls(const Json& calls, const std::string& place, size_t message_index,
                       OrderedBody* body, v1::ChatMessage* message) {
  if (!calls.is_array()) {
    return BadField(place, "an array");
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const OrderedJson* ordered = nullptr;
    if (HasObjectArguments(calls[i])) {
      ASSIGN_OR_RETURN(const OrderedJson* json, body->Get());
      ordered = &(*json)["messages"][message_index]["tool_calls"][i];
    }
    const absl::Status read = ReadCall(calls[i], place + "[" + std::to_string(i) + "]", ordered,
                                       message->add_tool_calls());
    if (!read.ok()) {
      return read;
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const Json& json, size_t index, OrderedBody* body,
                         v1::ChatMessage* message) {
  const std::string place = "messages[" + std::to_string(index) + "]";
  if (!json.is_object()) {
    return BadField(place, "an object");
  }
  Fields fields(json, place + ".");
  const auto role = fields.Text("role");
  for (const char* name : {"function_call", "audio"}) {
    fields.Refuse(name);
  }
  if (!fields.status().ok()) {
    return fields.status();
  }
  if (!role.has_value() || role->empty()) {
    return BadField(place + ".role", "given");
  }
  // What newer clients call the system's.
  message->set_role(*role == "developer" ? "system" : *role);
  // What vLLM, DeepSeek and others call what the assistant thought.
  if (const auto text = fields.Text("reasoning_content")) {
    message->set_reasoning_content(*text);
  }
  if (const auto text = fields.Text("thinking")) {
    message->set_thinking(*text);
  }
  if (const auto text = fields.Text("reasoning")) {
    message->set_reasoning(*text);
  }
  if (const auto id = fields.Text("tool_call_id")) {
    message->set_tool_call_id(*id);
  }
  if (const auto name = fields.Text("name")) {
    message->set_name(*name);
  }
  const auto refusal = fields.Text("refusal");
  const Json* calls = fields.Find("tool_calls");
  const Json* content = fields.Find("content");
  if (!fields.status().ok()) {
    return fields.status();
  }
  if (calls != nullptr) {
    const absl::Status read = ReadCalls(*calls, place + ".tool_calls", index, body, message);
    if (!read.ok()) {
      return read;
    }
  }
  if (content == nullptr && message->role() == "assistant") {
    message->set_content(refusal.value_or(""));
    // Clients send back what was a thought alone without that, as null or not at all.
    message->set_without_content(!refusal.has_value() &&
                                 (message->tool_calls_size() > 0 || HasReasoning(*message)));
    return absl::OkStatus();
  }
  return ReadContent(content, place + ".content", message->mutable_content());
}

// The name in {"type": "function", "function": {"name"}}, or beside the type; "" where there is
// none.
std::string ToolNameOf(const Json& tool) {
  const auto function = tool.is_object() ? tool.find("function") : tool.end();
  const Json& named =
      tool.is_object() && function != tool.end() && function->is_object() ? *function : tool;
  const auto name = named.is_object() ? named.find("name") : named.end();
  return named.is_object() && name != named.end() && name->is_string() ? name->get<std::string>()
                                                                       : "";
}

// {"mode", "tools": [{"type": "function", "function": {"name"}}]}, in a member "allowed_tools" or
// beside the type: the others are left out.
void ReadAllowedTools(const Json& choice, Fields* fields, v1::ChatInput* chat) {
  Fields outer(choice, "tool_choice.");
  const Json* nested = outer.Object("allowed_tools");
  const std::string prefix = nested == nullptr ? "tool_choice." : outer.Name("allowed_tools") + ".";
  Fields allowed(nested == nullptr ? choice : *nested, prefix);
  const std::string mode = allowed.Text("mode").value_or("");
  fields->Fail(outer.status());
  fields->Fail(allowed.status());
  if (mode != "auto" && mode != "required") {
    fields->Fail(BadField(prefix + "mode", "\"auto\" or \"required\""));
    return;
  }
  const Json* names = allowed.Find("tools");
  if (names == nullptr || !names->is_array() || names->empty()) {
    fields->Fail(BadField(prefix + "tools", "an array of tools"));
    return;
  }
  const Json* tools = fields->Find("tools");
  std::map<std::string, std::vector<size_t>> by_name;
  for (size_t i = 0; tools != nullptr && tools->is_array() && i < tools->size(); ++i) {
    by_name[ToolNameOf((*tools)[i])].push_back(i);
  }
  std::set<size_t> kept;
  for (const Json& one : *names) {
    const std::string name = ToolNameOf(one);
    const auto found = by_name.find(name);
    if (name.empty() || found == by_name.end()) {
      fields->Fail(BadField(prefix + "tools", "some of the tools that are offered"));
      return;
    }
    kept.insert(found->second.begin(), found->second.end());
  }
  google::protobuf::RepeatedPtrField<std::string> all;
  all.Swap(chat->mutable_tools());
  for (const size_t i : kept) {
    if (i < static_cast<size_t>(all.size())) chat->add_tools(all[static_cast<int>(i)]);
  }
  chat->set_tool_choice(mode);
}

// {"type": "function", "function": {"name"}}, or the name beside the type.
void ReadNamedTool(const Json& choice, Fields* fields, v1::ChatInput* chat) {
  Fields named(choice, "tool_choice.");
  const std::string type = named.Text("type").value_or("function");
  if (type == "allowed_tools") {
    ReadAllowedTools(choice, fields, chat);
    return;
  }
  if (type != "function") {
    fields->Fail(named.status());
    fields->Fail(NotSupported("tool_choice.type", "only \"function\" and \"allowed_tools\" are"));
    return;
  }
  const Json* function = named.Object("function");
  Fields inner(function == nullptr ? choice : *function,
               function == nullptr ? "tool_choice." : "tool_choice.function.");
  const auto name = inner.Text("name");
  fields->Fail(named.status());
  fields->Fail(inner.status());
  if (!name.has_value() || name->empty()) {
    fields->Fail(BadField("tool_choice.function.name", "given"));
    return;
  }
  chat->set_tool_choice("tool");
  chat->set_tool_name(*name);
}

void ReadToolChoice(const Json& choice, Fields* fields, v1::ChatInput* chat) {
  if (choice.is_object()) {
    ReadNamedTool(choice, fields, chat);
    return;
  }
  const std::string word = choice.is_string() ? choice.get<std::string>() : "";
  if (word == "none" || word == "auto" || word == "required") {
    chat->set_tool_choice(word);
  } else if (word == "any") {  // Mistral's word.
    chat->set_tool_choice("required");
  } else {
    fields->Fail(BadField("tool_choice", "\"auto\", \"none\", \"required\", or a tool"));
  }
}

void ReadTools(Fields* fields, OrderedBody* body, v1::ChatInput* chat) {
  if (const Json* tools = fields->Find("tools")) {
    if (!tools->is_array()) {
      fields->Fail(BadField("tools", "an array"));
      return;
    }
    // What is in them is looked at where the prompt is made.
    if (!tools->empty()) {
      const auto written = body->Written("tools");
      if (!written.ok()) {
        fields->Fail(written.status());
        return;
      }
      for (const std::string_view tool : ItemTexts(*written)) {
        chat->add_tools(CompactJson(tool));
      }
    }
  }
  if (const Json* choice = fields->Find("tool_choice")) ReadToolChoice(*choice, fields, chat);
  chat->set_one_tool_call(!fields->BoolOr("parallel_tool_calls", true));
}

// How many tokens a thought may have, by each of its names.
void ReadThoughtBudget(Fields* fields, v1::ChatInput* chat) {
  std::string named;
  const auto set = [&](const std::string& name, std::optional<int64_t> tokens) {
    if (!tokens.has_value()) {
      return;
    }
    if (!named.empty() && chat->thought_budget_tokens() != static_cast<uint64_t>(*tokens)) {
      fields->Fail(BadField(name, "left out beside " + named));
    }
    named = name;
    chat->set_thought_budget_tokens(static_cast<uint32_t>(*tokens));
  };
  for (const char* name : {"max_thinking_tokens", "thinking_token_budget", "thinking_budget"}) {
    set(name, fields->Int(name, 0, kMaxThoughtBudget));
  }
  // OpenRouter's, then Anthropic's.
  for (const auto& [object, member] :
       {std::pair("reasoning", "max_tokens"), std::pair("thinking", "budget_tokens")}) {
    if (const Json* given = fields->Object(object)) {
      Fields inner(*given, std::string(object) + ".");
      set(std::string(object) + "." + member, inner.Int(member, 0, kMaxThoughtBudget));
      fields->Fail(inner.status());
    }
  }
}

void SetThinking(bool on, OrderedJson* variables) {
  // By the names that templates have for it.
  (*variables)["enable_thinking"] = on;
  (*variables)["thinking"] = on;
}

// Variables of the template's own.
void ReadTemplateArguments(Fields* fields, OrderedBody* body, v1::ChatInput* chat) {
  OrderedJson variables = OrderedJson::object();
  auto effort = fields->Text("reasoning_effort");
  if (const Json* reasoning = fields->Object("reasoning"); reasoning != nullptr && !effort) {
    Fields inner(*reasoning, "reasoning.");
    effort = inner.Text("effort");
    fields->Fail(inner.status());
  }
  if (effort.has_value()) {
    variables["reasoning_effort"] = *effort;
    if (*effort == "none") SetThinking(false, &variables);
  }
  if (const Json* thinking = fields->Object("thinking")) {
    Fields inner(*thinking, "thinking.");
    if (const auto type = inner.Text("type")) SetThinking(*type != "disabled", &variables);
    fields->Fail(inner.status());
  }
  if (const auto on = fields->Bool("enable_thinking")) SetThinking(*on, &variables);
  if (const Json* given = fields->Object("chat_template_kwargs"); given != nullptr) {
    for (const char* name : {"messages", "tools", "documents", "add_generation_prompt",
                             "continue_final_message", "chat_template", "tokenize"}) {
      if (given->contains(name)) {
        fields->Fail(BadField("chat_template_kwargs", "without \"" + std::string(name) +
                                                          "\", which has a field of its own"));
      }
    }
    if (!given->empty()) {
      const auto json = body->Get();
      if (!json.ok()) {
        fields->Fail(json.status());
        return;
      }
      variables.update((**json)["chat_template_kwargs"]);
    }
  }
  if (!variables.empty()) chat->set_template_arguments(Dump(variables));
}

}  // namespace

const std::vector<std::string>& MessageMembers() {
  static const auto& members =
      *new std::vector<std::string>{"messages", "tools", "chat_template_kwargs"};
  return members;
}

void ReadMessages(Fields* fields, OrderedBody* body, v1::ChatInput* chat) {
  const Json* messages = fields->Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields->Fail(BadField("messages", "an array of at least one message"));
    return;
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const absl::Status status = ReadMessage((*messages)[i], i, body, chat->add_messages());
    if (!status.ok()) {
      fields->Fail(status);
      return;
    }
  }
  ReadTools(fields, body, chat);
  ReadTemplateArguments(fields, body, chat);
  ReadThoughtBudget(fields, chat);
  if (const auto add = fields->Bool("add_generation_prompt")) {
    chat->set_add_generation_prompt(*add);
  }
  if (fields->BoolOr("continue_final_message", false)) {
    if (chat->add_generation_prompt()) {
      fields->Fail(BadField("add_generation_prompt", "false with continue_final_message"));
    }
    chat->set_continue_final_message(true);
  }
}

}  // namespace strata
