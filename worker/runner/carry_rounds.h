// How often a stage asks another one for the KV that it is to take over.
#ifndef STRATA_WORKER_RUNNER_CARRY_ROUNDS_H_
#define STRATA_WORKER_RUNNER_CARRY_ROUNDS_H_

#include <cstdint>

namespace strata {

// What a stage has of another's, in pages, and in sequences that are whole.
struct TakenKv {
  uint64_t bytes = 0;
  uint64_t sequences = 0;
};

// Rounds follow one another, while the other stage serves, until one brings little: what is left
// requests wait for.
class CarryRounds {
 public:
  uint32_t round() const { return round_; }
  const TakenKv& taken() const { return taken_; }
  void Done(const TakenKv& taken) {
    new_bytes_ = taken.bytes - taken_.bytes;
    taken_ = taken;
    ++round_;
  }
  bool More() const { return new_bytes_ > kLittleBytes && round_ < kMostRounds; }

 private:
  static constexpr uint64_t kLittleBytes = uint64_t{1} << 20;
  static constexpr uint32_t kMostRounds = 8;

  uint32_t round_ = 0;
  uint64_t new_bytes_ = 0;
  TakenKv taken_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_CARRY_ROUNDS_H_
