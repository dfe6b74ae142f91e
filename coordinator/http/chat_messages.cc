#include "coordinator/http/chat_messages.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status.h"
#include "text/tools/ordered_json.h"

namespace strata {
namespace {

// The body once more, with the keys of its objects in their order; only where something needs it.
class InOrder {
 public:
  explicit InOrder(std::string_view body) : body_(body) {}

  absl::StatusOr<const OrderedJson*> Get() {
    if (!json_.has_value()) {
      json_ = ParseOrderedJson(body_, "the body", {"messages", "tools", "chat_template_kwargs"});
    }
    RETURN_IF_ERROR(json_->status());
    return &**json_;
  }

 private:
  const std::string_view body_;
  std::optional<absl::StatusOr<OrderedJson>> json_;
};

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
                       InOrder* in_order, v1::ChatMessage* message) {
  if (!calls.is_array()) {
    return BadField(place, "an array");
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const OrderedJson* ordered = nullptr;
    if (HasObjectArguments(calls[i])) {
      ASSIGN_OR_RETURN(const OrderedJson* body, in_order->Get());
      ordered = &(*body)["messages"][message_index]["tool_calls"][i];
    }
    const absl::Status read = ReadCall(calls[i], place + "[" + std::to_string(i) + "]", ordered,
                                       message->add_tool_calls());
    if (!read.ok()) {
      return read;
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const Json& json, size_t index, InOrder* in_order,
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
    const absl::Status read = ReadCalls(*calls, place + ".tool_calls", index, in_order, message);
    if (!read.ok()) {
      return read;
    }
  }
  if (content == nullptr && message->role() == "assistant") {
    if (refusal.has_value()) {
      message->set_content(*refusal);
      return absl::OkStatus();
    }
    if (message->tool_calls_size() > 0 || HasReasoning(*message)) {
      message->set_without_content(true);
      return absl::OkStatus();
    }
  }
  return ReadContent(content, place + ".content", message->mutable_content());
}

void ReadTools(Fields* fields, InOrder* in_order, v1::ChatInput* chat) {
  if (const Json* tools = fields->Find("tools")) {
    if (!tools->is_array()) {
      fields->Fail(BadField("tools", "an array"));
      return;
    }
    // What is in them is looked at where the prompt is made.
    if (!tools->empty()) {
      const auto body = in_order->Get();
      if (!body.ok()) {
        fields->Fail(body.status());
        return;
      }
      for (const OrderedJson& tool : (**body)["tools"]) {
        chat->add_tools(Dump(tool));
      }
    }
  }
  if (const Json* choice = fields->Find("tool_choice")) {
    if (*choice == "none" || *choice == "auto") {
      chat->set_tool_choice(choice->get<std::string>());
    } else if (*choice == "required" || choice->is_object()) {
      fields->Fail(NotSupported("tool_choice",
                                "only \"auto\" and \"none\" are; no answer can be held to a call"));
    } else {
      fields->Fail(BadField("tool_choice", "\"auto\", \"none\", \"required\", or a tool"));
    }
  }
  chat->set_one_tool_call(!fields->BoolOr("parallel_tool_calls", true));
}

// Variables of the template's own.
void ReadTemplateArguments(Fields* fields, InOrder* in_order, v1::ChatInput* chat) {
  OrderedJson variables = OrderedJson::object();
  if (const auto effort = fields->Text("reasoning_effort")) {
    variables["reasoning_effort"] = *effort;
    if (*effort == "none") {
      // By the names that templates have for it.
      variables["enable_thinking"] = false;
      variables["thinking"] = false;
    }
  }
  if (const Json* given = fields->Object("chat_template_kwargs"); given != nullptr) {
    for (const char* name : {"messages", "tools", "documents", "add_generation_prompt",
                             "continue_final_message", "chat_template", "tokenize"}) {
      if (given->contains(name)) {
        fields->Fail(BadField("chat_template_kwargs", "without \"" + std::string(name) +
                                                          "\", which has a field of its own"));
      }
    }
    if (!given->empty()) {
      const auto body = in_order->Get();
      if (!body.ok()) {
        fields->Fail(body.status());
        return;
      }
      variables.update((**body)["chat_template_kwargs"]);
    }
  }
  if (!variables.empty()) chat->set_template_arguments(Dump(variables));
}

}  // namespace

void ReadMessages(Fields* fields, std::string_view body, v1::ChatInput* chat) {
  const Json* messages = fields->Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields->Fail(BadField("messages", "an array of at least one message"));
    return;
  }
  InOrder in_order(body);
  for (size_t i = 0; i < messages->size(); ++i) {
    const absl::Status status = ReadMessage((*messages)[i], i, &in_order, chat->add_messages());
    if (!status.ok()) {
      fields->Fail(status);
      return;
    }
  }
  ReadTools(fields, &in_order, chat);
  ReadTemplateArguments(fields, &in_order, chat);
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
