#include "coordinator/service/models/standby_book.h"

#include <set>

#include "common/status.h"

namespace strata {
namespace {

// A layer that failed is tried again after so long.
constexpr nanoseconds kTryAgain = std::chrono::seconds(20);
// A node that has kept a layer says so of its cache within this time.
constexpr nanoseconds kToldLater = std::chrono::seconds(10);

}  // namespace

std::vector<StandbyBook::Say> StandbyBook::Set(
    std::vector<StandbyPart> parts, const std::map<std::string, uint64_t>& incarnations) {
  std::map<Place, Layer> before;
  before.swap(layers_);
  parts_ = std::move(parts);
  incarnations_ = incarnations;
  for (const StandbyPart& part : parts_) {
    const auto life = incarnations_.find(part.node);
    if (part.node.empty() || life == incarnations_.end()) {
      continue;
    }
    for (uint32_t layer = part.first_layer; layer <= part.last_layer; ++layer) {
      const Place place{{part.node, life->second}, layer};
      const auto old = before.find(place);
      layers_[place] = old == before.end() ? Layer() : old->second;
      if (old != before.end()) before.erase(old);
    }
  }
  std::map<Node, std::vector<uint32_t>> drop;
  for (const auto& [place, layer] : before) {
    drop[place.first].push_back(place.second);
  }
  std::vector<Say> says;
  for (auto& [node, layers] : drop) {
    says.push_back({node, std::nullopt, std::move(layers)});
  }
  return says;
}

std::vector<StandbyBook::Say> StandbyBook::Next(TimePoint now) {
  std::set<Node> busy;
  for (auto& [place, layer] : layers_) {
    if (layer.state == State::kSaid) busy.insert(place.first);
  }
  std::vector<Say> says;
  for (auto& [place, layer] : layers_) {
    const bool due =
        layer.state == State::kWaiting || (layer.state == State::kFailed && now >= layer.since);
    if (due && busy.insert(place.first).second) {
      layer.state = State::kSaid;
      says.push_back({place.first, place.second, {}});
    }
  }
  return says;
}

void StandbyBook::NotSaid(const Say& say) {
  if (!say.keep.has_value()) {
    return;
  }
  if (const auto it = layers_.find({say.node, *say.keep}); it != layers_.end()) {
    it->second.state = State::kWaiting;
  }
}

bool StandbyBook::OnKept(const Node& node, const v1::LayerKept& kept, TimePoint now) {
  const auto it = layers_.find({node, kept.layer()});
  if (it == layers_.end() || it->second.state != State::kSaid) {
    return false;
  }
  Layer& layer = it->second;
  layer.bytes = kept.has_error() ? 0 : kept.bytes();
  layer.error = kept.error();
  layer.state = kept.has_error() ? State::kFailed : State::kKept;
  layer.since = kept.has_error() ? now + kTryAgain : now;
  if (kept.has_error()) {
    // What ails one layer ails the others of the node too: they are not tried in a row.
    for (auto& [place, other] : layers_) {
      if (place.first == node && other.state == State::kWaiting) {
        other.state = State::kFailed;
        other.error = kept.error();
        other.since = layer.since;
      }
    }
  } else {
    for (auto& [place, other] : layers_) {
      if (place.first == node && other.state == State::kFailed) other.since = now;
    }
  }
  return true;
}

void StandbyBook::Check(const HasFn& has, TimePoint now) {
  for (auto& [place, layer] : layers_) {
    if (layer.state == State::kKept && now - layer.since > kToldLater &&
        !has(place.first.name, place.second)) {
      layer = Layer();
    }
  }
}

std::vector<v1::StandbyLayers> StandbyBook::Describe() const {
  std::vector<v1::StandbyLayers> out;
  for (const StandbyPart& part : parts_) {
    v1::StandbyLayers& described = out.emplace_back();
    described.set_first_layer(part.first_layer);
    described.set_last_layer(part.last_layer);
    described.set_of_node(part.of_node);
    described.set_node(part.node);
    if (part.node.empty()) {
      const v1::ErrorDetail why = DetailOf(part.why);
      described.set_state("failed");
      described.set_problem(why.message());
      described.set_problem_reason(why.reason());
      continue;
    }
    bool said = false;
    const auto life = incarnations_.find(part.node);
    for (uint32_t number = part.first_layer; number <= part.last_layer; ++number) {
      const auto it = life == incarnations_.end()
                          ? layers_.end()
                          : layers_.find({{part.node, life->second}, number});
      if (it == layers_.end()) {
        continue;
      }
      const Layer& layer = it->second;
      said = said || layer.state == State::kSaid;
      if (layer.state == State::kKept) {
        described.set_layers_done(described.layers_done() + 1);
        described.set_bytes(described.bytes() + layer.bytes);
      } else if (layer.state == State::kFailed && described.problem().empty()) {
        described.set_problem(layer.error.message());
        described.set_problem_reason(layer.error.reason());
      }
    }
    const bool all = described.layers_done() == part.last_layer - part.first_layer + 1;
    described.set_state(all                            ? "ready"
                        : !described.problem().empty() ? "failed"
                        : said                         ? "loading"
                                                       : "waiting");
  }
  return out;
}

}  // namespace strata
