#include "tests/sim/ranks/rank_network.h"

#include <algorithm>

namespace strata::sim {

class RankNetwork::Channel : public RankChannel {
 public:
  Channel(RankNetwork* network, std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in)
      : network_(*network), out_(std::move(out)), in_(std::move(in)) {}
  ~Channel() override { EndSending(); }

  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override {
    if (out_->from_dead || out_->to_dead) {
      return absl::UnavailableError(out_->from_dead ? "this process is dead" : "it is gone");
    }
    const size_t room = out_->capacity - out_->on_its_way;
    if (room == 0 || bytes.empty() || network_.Stalled(out_->from)) {
      return size_t{0};
    }
    const size_t count =
        std::min(bytes.size(), size_t{1} + network_.random_.Below(static_cast<uint32_t>(room)));
    const TimePoint now = network_.clock_.Now();
    const TimePoint before = out_->segments.empty() ? now : out_->segments.back().comes;
    out_->segments.push_back(
        {std::max(before, now + nanoseconds(network_.random_.Below(
                                    static_cast<uint32_t>(out_->latency.count())))),
         {bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count)}});
    out_->on_its_way += count;
    ++network_.moves_;
    return count;
  }

  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    if (in_->to_dead) {
      return absl::UnavailableError("this process is dead");
    }
    if (network_.Stalled(in_->to) || out.empty()) {
      return size_t{0};
    }
    if (in_->segments.empty() && in_->ended) {
      return absl::UnavailableError("it is gone");
    }
    size_t filled = 0;
    while (filled < out.size() && !in_->segments.empty() &&
           in_->segments.front().comes <= network_.clock_.Now()) {
      Segment& segment = in_->segments.front();
      const size_t count = std::min(out.size() - filled, segment.bytes.size());
      std::copy_n(segment.bytes.begin(), count, out.begin() + static_cast<ptrdiff_t>(filled));
      segment.bytes.erase(segment.bytes.begin(),
                          segment.bytes.begin() + static_cast<ptrdiff_t>(count));
      if (segment.bytes.empty()) {
        in_->segments.pop_front();
      }
      filled += count;
    }
    if (filled > 0) {
      in_->on_its_way -= filled;
      ++network_.moves_;
      if (network_.damages_ == in_->to) {
        out[network_.random_.Below(static_cast<uint32_t>(filled))] ^=
            static_cast<uint8_t>(1 << network_.random_.Below(8));
        network_.damages_.reset();
        network_.damaged_ = true;
      }
    }
    return filled;
  }

  void EndSending() override {
    if (!out_->ended) {
      out_->ended = true;
      ++network_.moves_;
    }
  }

 private:
  RankNetwork& network_;
  const std::shared_ptr<Pipe> out_;
  const std::shared_ptr<Pipe> in_;
};

RankNetwork::RankNetwork(const RankClock* clock, Random* random)
    : clock_(*clock),
      random_(*random),
      capacity_(random->Between(1, 4) == 1 ? random->Between(1, 100) : random->Between(64, 8192)),
      latency_(1 + random->Below(500'000)) {}

RankNetwork::Ends RankNetwork::Connect(uint32_t one, uint32_t other) {
  const auto there = std::make_shared<Pipe>(Pipe{one, other, capacity_, latency_});
  const auto back = std::make_shared<Pipe>(Pipe{other, one, capacity_, latency_});
  pipes_.insert(pipes_.end(), {there, back});
  return {std::make_unique<Channel>(this, there, back),
          std::make_unique<Channel>(this, back, there)};
}

bool RankNetwork::Stalled(uint32_t rank) const {
  const auto it = stalled_until_.find(rank);
  return it != stalled_until_.end() && it->second > clock_.Now();
}

bool RankNetwork::stalls() const {
  return std::any_of(stalled_until_.begin(), stalled_until_.end(),
                     [this](const auto& one) { return one.second > clock_.Now(); });
}

void RankNetwork::Kill(uint32_t rank) {
  for (const auto& pipe : pipes_) {
    if (pipe->from == rank) {
      pipe->from_dead = true;
      pipe->ended = true;
      while (!pipe->segments.empty() && random_.OneIn(2)) {
        pipe->on_its_way -= pipe->segments.back().bytes.size();
        pipe->segments.pop_back();
      }
    } else if (pipe->to == rank) {
      pipe->to_dead = true;
    }
  }
  ++moves_;
}

void RankNetwork::Stall(uint32_t rank, nanoseconds time) {
  stalled_until_[rank] = clock_.Now() + time;
}

void RankNetwork::Damage(uint32_t rank) { damages_ = rank; }

std::optional<TimePoint> RankNetwork::NextEvent() const {
  std::optional<TimePoint> next;
  const auto at = [&](TimePoint time) {
    if (time > clock_.Now() && (!next || time < *next)) {
      next = time;
    }
  };
  for (const auto& pipe : pipes_) {
    if (!pipe->segments.empty()) {
      at(pipe->segments.front().comes);
    }
  }
  for (const auto& [rank, until] : stalled_until_) {
    at(until);
  }
  return next;
}

}  // namespace strata::sim
