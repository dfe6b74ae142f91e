// Threads of a simulation: they take turns on the thread of who runs them, and never run at once.
#ifndef STRATA_TESTS_SIM_RANKS_FIBERS_H_
#define STRATA_TESTS_SIM_RANKS_FIBERS_H_

#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/random.h"

namespace strata::sim {

class Fibers {
 public:
  explicit Fibers(Random* random);
  ~Fibers();  // All have ended.

  // Of a fiber or not; it runs from the next round on.
  void Start(std::function<void()> body);
  // Gives way, of a fiber.
  void Pause();

  // Lets each fiber go on until it gives way or ends, in an order that is drawn. Whether there are
  // any left.
  bool Round();

 private:
  struct Fiber;
  static void Enter();

  Random& random_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANKS_FIBERS_H_
