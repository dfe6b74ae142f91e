#include "cli/deploy/node_list.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/status.h"

namespace strata::deploy {

bool IsThere(const ListedNode& node) { return node.state != "lost" && node.state != "unreachable"; }

absl::StatusOr<std::map<std::string, ListedNode>> ParseNodeList(const std::string& text) {
  std::map<std::string, ListedNode> nodes;
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto text_of = [](const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto found = list.is_object() ? list.find("nodes") : list.end();
  if (!list.is_object() || found == list.end() || !found->is_array()) {
    return Error(absl::StatusCode::kInternal, "BAD_FACTS",
                 "asked for its nodes, the coordinator's machine gave no list")
        .Hint("see what it says there");
  }
  for (const nlohmann::json& entry : *found) {
    if (!entry.is_object()) {
      continue;
    }
    ListedNode node;
    node.state = text_of(entry, "state");
    if (const auto life = entry.find("incarnation"); life != entry.end()) {
      node.incarnation = life->is_number_unsigned() ? life->get<uint64_t>() : 0;
    }
    if (const auto models = entry.find("models"); models != entry.end() && models->is_array()) {
      for (const nlohmann::json& model : *models) {
        node.models.push_back(model.is_string() ? model.get<std::string>() : "");
      }
    }
    nodes[text_of(entry, "name")] = std::move(node);
  }
  return nodes;
}

}  // namespace strata::deploy
