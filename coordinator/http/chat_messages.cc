#include "coordinator/http/chat_messages.h"

#include <string>

namespace strata {
namespace {

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
    const Json& part = (*content)[i];
    const std::string place = name + "[" + std::to_string(i) + "]";
    if (!part.is_object()) {
      return BadField(place, "an object");
    }
    Fields fields(part, place + ".");
    const auto type = fields.Text("type");
    const auto text = fields.Text("text");
    if (!fields.status().ok()) {
      return fields.status();
    }
    if (type.value_or("text") != "text") {
      return NotSupported(place + ".type", "only \"text\" is");
    }
    if (!text.has_value()) {
      return BadField(place + ".text", "given");
    }
    *out += *text;
  }
  return absl::OkStatus();
}

bool HasReasoning(const v1::ChatMessage& message) {
  return message.has_reasoning_content() || message.has_thinking() || message.has_reasoning();
}

absl::Status ReadMessage(const Json& json, const std::string& place, v1::ChatMessage* message) {
  if (!json.is_object()) {
    return BadField(place, "an object");
  }
  Fields fields(json, place + ".");
  const auto role = fields.Text("role");
  for (const char* name : {"tool_calls", "tool_call_id", "function_call", "audio"}) {
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
  if (!fields.status().ok()) {
    return fields.status();
  }
  const Json* content = fields.Find("content");
  if (content == nullptr && message->role() == "assistant" && HasReasoning(*message)) {
    message->set_without_content(true);
    return absl::OkStatus();
  }
  return ReadContent(content, place + ".content", message->mutable_content());
}

}  // namespace

void ReadMessages(Fields* fields, v1::ChatInput* chat) {
  const Json* messages = fields->Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields->Fail(BadField("messages", "an array of at least one message"));
    return;
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string place = "messages[" + std::to_string(i) + "]";
    const absl::Status status = ReadMessage((*messages)[i], place, chat->add_messages());
    if (!status.ok()) {
      fields->Fail(status);
      return;
    }
  }
  if (const auto add = fields->Bool("add_generation_prompt")) {
    chat->set_add_generation_prompt(*add);
  }
}

}  // namespace strata
