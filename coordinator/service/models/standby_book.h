// Which layers which nodes keep for a placed model, and how far they are with it. A core: time is
// handed in, one thread.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_STANDBY_BOOK_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_STANDBY_BOOK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "coordinator/planner/standby.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

class StandbyBook {
 public:
  // A node in one of its lives.
  struct Node {
    std::string name;
    uint64_t incarnation = 0;
    auto operator<=>(const Node&) const = default;
  };
  // What is to be said to a node.
  struct Say {
    Node node;
    std::optional<uint32_t> keep;  // A layer; nullopt: to let go of `drop`.
    std::vector<uint32_t> drop;
  };

  // These parts are wanted from now on, on nodes in these lives; what is kept of them stays so.
  // What is to be dropped.
  std::vector<Say> Set(std::vector<StandbyPart> parts,
                       const std::map<std::string, uint64_t>& incarnations);
  // Nothing is wanted any more: what is to be dropped.
  std::vector<Say> Clear() { return Set({}, {}); }

  // The next layer of each node that keeps none at present, as if it were said.
  std::vector<Say> Next(TimePoint now);
  // It could not be said.
  void NotSaid(const Say& say);
  // A node's answer. False: it was not asked for.
  bool OnKept(const Node& node, const v1::LayerKept& kept, TimePoint now);
  // Layers that nodes have kept, and of which `has` says that they do not have them any more (they
  // were evicted), are kept again.
  using HasFn = std::function<bool(const std::string& node, uint32_t layer)>;
  void Check(const HasFn& has, TimePoint now);

  // For people.
  std::vector<v1::StandbyLayers> Describe() const;

 private:
  enum class State { kWaiting, kSaid, kKept, kFailed };
  struct Layer {
    State state = State::kWaiting;
    uint64_t bytes = 0;
    TimePoint since{};  // When it was kept, or when a failed one is tried again.
    v1::ErrorDetail error;
  };
  using Place = std::pair<Node, uint32_t>;

  std::vector<StandbyPart> parts_;
  std::map<std::string, uint64_t> incarnations_;
  std::map<Place, Layer> layers_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_STANDBY_BOOK_H_
