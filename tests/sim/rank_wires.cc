#include "tests/sim/rank_wires.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::sim {
namespace {

struct RankWire {
  struct Side {
    std::shared_ptr<const RankOwner> owner;
    std::vector<uint8_t> comes;  // To this side.
    size_t taken = 0;            // Of these.
    bool ended = false;          // It sends nothing more.
    bool gone = false;
  };
  std::array<Side, 2> sides;
};

class RankWireEnd : public RankChannel {
 public:
  RankWireEnd(std::shared_ptr<RankWire> wire, size_t side, const Network* network,
              RankFibers* fibers)
      : wire_(std::move(wire)),
        own_(wire_->sides[side]),
        other_(wire_->sides[1 - side]),
        network_(*network),
        fibers_(*fibers) {}
  ~RankWireEnd() override {
    own_.gone = own_.ended = true;
    fibers_.Moved();
  }

  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override {
    if (!own_.owner->there || own_.ended) {
      return absl::UnavailableError("this rank has ended");
    }
    if (other_.gone && !other_.owner->silent && Passes(other_, own_)) {
      return absl::UnavailableError("the connection is closed");
    }
    other_.comes.insert(other_.comes.end(), bytes.begin(), bytes.end());
    fibers_.Moved();
    return bytes.size();
  }

  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    if (!own_.owner->there) {
      return absl::UnavailableError("this rank has ended");
    }
    if (!Passes(other_, own_)) {
      return 0;
    }
    const size_t count = std::min(out.size(), own_.comes.size() - own_.taken);
    if (count > 0) {
      std::memcpy(out.data(), own_.comes.data() + own_.taken, count);
      own_.taken += count;
      if (own_.taken == own_.comes.size()) {
        own_.comes.clear();
        own_.taken = 0;
      }
      fibers_.Moved();
      return count;
    }
    if (other_.ended && !other_.owner->silent) {
      return absl::UnavailableError("the connection is closed");
    }
    return 0;
  }

  void EndSending() override {
    // Of a machine that stopped nothing is heard.
    own_.ended = true;
    fibers_.Moved();
  }

 private:
  bool Passes(const RankWire::Side& from, const RankWire::Side& to) const {
    return network_.Passes(from.owner->machine, to.owner->machine);
  }

  const std::shared_ptr<RankWire> wire_;
  RankWire::Side& own_;
  RankWire::Side& other_;
  const Network& network_;
  RankFibers& fibers_;
};

}  // namespace

RankWireEnds ConnectRanks(std::shared_ptr<const RankOwner> one,
                          std::shared_ptr<const RankOwner> other, const Network* network,
                          RankFibers* fibers) {
  auto wire = std::make_shared<RankWire>();
  wire->sides[0].owner = std::move(one);
  wire->sides[1].owner = std::move(other);
  return {std::make_unique<RankWireEnd>(wire, 0, network, fibers),
          std::make_unique<RankWireEnd>(wire, 1, network, fibers)};
}

}  // namespace strata::sim
