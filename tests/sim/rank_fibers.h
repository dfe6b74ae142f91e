// What waits in the middle of a call: leaders that compute or join, and followers. Each is a fiber,
// which goes on when something of another one reaches it, or when time has passed.
#ifndef STRATA_TESTS_SIM_RANK_FIBERS_H_
#define STRATA_TESTS_SIM_RANK_FIBERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "tests/sim/random.h"
#include "tests/sim/ranks/fibers.h"
#include "tests/sim/world.h"

namespace strata::sim {

class RankFibers {
 public:
  enum class Waits {
    kBriefly,  // Somebody waits for its end.
    kIdly      // For calls of another one.
  };

  explicit RankFibers(World* world)
      : world_(*world),
        random_(Mix64(world->scenario.seed ^ 0x4A2)),
        clock_(world),
        fibers_(&random_) {}

  // Runs `body` in turns with the others, from the next Run on; then `done`, of no fiber.
  void Start(Waits waits, std::function<void()> body, std::function<void()> done);
  // Of a body: others go on.
  void Pause() { fibers_.Pause(); }
  // Something has reached a fiber.
  void Moved() { ++moves_; }
  // Lets all go on until nothing moves. Not of a body.
  void Run();
  // Lets all go on until `over`; false: it is not after many turns in which no time passes.
  bool RunUntil(const std::function<bool()>& over);
  // The world's time.
  const Clock* clock() const { return &clock_; }

 private:
  struct WorldClock : Clock {
    explicit WorldClock(const World* of) : world(of) {}
    TimePoint Now() const override { return world->now(); }
    const World* const world;
  };

  // Whether any are left.
  bool Round();
  // They look at the clock every now and then.
  void LookLater();

  World& world_;
  Random random_;
  const WorldClock clock_;
  Fibers fibers_;
  std::vector<std::function<void()>> ended_;
  uint64_t moves_ = 0;
  int brief_ = 0;  // Fibers whose end somebody waits for.
  bool running_ = false;
  std::optional<TimePoint> look_at_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANK_FIBERS_H_
