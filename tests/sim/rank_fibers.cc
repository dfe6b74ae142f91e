#include "tests/sim/rank_fibers.h"

#include <utility>

namespace strata::sim {
namespace {

constexpr nanoseconds kLookBriefly = milliseconds(5);
constexpr nanoseconds kLookIdly = milliseconds(100);
// What ends without time passing ends within so many.
constexpr int kMostTurns = 1000;

}  // namespace

void RankFibers::Start(Waits waits, std::function<void()> body, std::function<void()> done) {
  const int brief = waits == Waits::kBriefly ? 1 : 0;
  brief_ += brief;
  Moved();
  fibers_.Start([this, body = std::move(body), done = std::move(done), brief] {
    body();
    brief_ -= brief;
    Moved();
    ended_.push_back(done);
  });
}

bool RankFibers::Round() {
  const bool left = fibers_.Round();
  for (const std::function<void()>& done : std::exchange(ended_, {})) {
    done();
  }
  return left;
}

void RankFibers::Run() {
  if (running_) {
    Moved();  // Who runs them goes on.
    return;
  }
  running_ = true;
  bool left = true;
  uint64_t before = 0;
  do {
    before = moves_;
    left = Round();
  } while (left && moves_ != before);
  running_ = false;
  if (left) {
    LookLater();
  }
}

bool RankFibers::RunUntil(const std::function<bool()>& over) {
  for (int turn = 0; turn < kMostTurns && !over(); ++turn) {
    Round();
  }
  return over();
}

void RankFibers::LookLater() {
  const TimePoint at = world_.now() + (brief_ > 0 ? kLookBriefly : kLookIdly);
  if (look_at_.has_value() && *look_at_ <= at) {
    return;
  }
  look_at_ = at;
  world_.events.At(at, [this, at] {
    if (look_at_ == at) {
      look_at_.reset();
      Run();
    }
  });
}

}  // namespace strata::sim
