#include "coordinator/members/control_streams.h"

#include <utility>

namespace strata {

void ControlStreams::Open(const std::string& node, uint64_t incarnation,
                          std::shared_ptr<NodeChannel> channel) {
  streams_[node] = {.incarnation = incarnation, .channel = std::move(channel)};
}

void ControlStreams::Close(const std::string& node) {
  if (const auto it = streams_.find(node); it != streams_.end()) {
    it->second.channel->Close();
    streams_.erase(it);
  }
}

void ControlStreams::CloseAll() {
  for (auto& [node, stream] : streams_) {
    stream.channel->Close();
  }
}

bool ControlStreams::OnEnded(const std::string& node, const std::shared_ptr<NodeChannel>& channel) {
  const auto it = streams_.find(node);
  if (it == streams_.end() || it->second.channel != channel) {
    return false;
  }
  streams_.erase(it);
  return true;
}

bool ControlStreams::Speaks(const std::string& node, uint64_t incarnation) const {
  const auto it = streams_.find(node);
  return it != streams_.end() && it->second.incarnation == incarnation;
}

bool ControlStreams::Send(const std::string& node, uint64_t incarnation,
                          v1::CoordinatorMessage message) {
  const auto it = streams_.find(node);
  return it != streams_.end() && it->second.incarnation == incarnation &&
         it->second.channel->Send(std::move(message));
}

bool ControlStreams::CountNonsense(const std::string& node) {
  const auto it = streams_.find(node);
  return it != streams_.end() && it->second.nonsense++ == 0;
}

}  // namespace strata
