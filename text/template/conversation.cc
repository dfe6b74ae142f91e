#include "text/template/conversation.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kReasoning[] = "reasoning_content";
constexpr char kThinking[] = "thinking";

Json Normalized(const Json& message) {
  Json fields = Json::object();
  const Json* reasoning = nullptr;
  for (const char* name : {kReasoning, kThinking, "reasoning"}) {
    const auto found = message.find(name);
    if (reasoning == nullptr && found != message.end() && !found->is_null()) {
      reasoning = &*found;
    }
  }
  if (reasoning != nullptr) {
    fields[kThinking] = *reasoning;
  }
  for (const auto& [name, value] : message.items()) {
    if (!value.is_null()) {
      fields[name] = value;
    }
  }
  if (reasoning != nullptr) {
    fields[kReasoning] = *reasoning;
  }
  return fields;
}

}  // namespace

void NormalizeMessages(Json* messages) {
  if (!messages->is_array()) {
    return;
  }
  for (Json& message : *messages) {
    if (message.is_object()) {
      message = Normalized(message);
    }
  }
}

void AddTokens(const std::vector<std::pair<std::string, std::string>>& tokens, Json* variables) {
  for (const auto& [name, token] : tokens) {
    if (!variables->contains(name)) {
      (*variables)[name] = token;
    }
  }
}

}  // namespace strata
