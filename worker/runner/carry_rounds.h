// How often a stage asks another one for the KV that it is to take over.
#ifndef STRATA_WORKER_RUNNER_CARRY_ROUNDS_H_
#define STRATA_WORKER_RUNNER_CARRY_ROUNDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata {

// What a stage has of others', in pages, and in sequences that are whole.
struct TakenKv {
  uint64_t bytes = 0;
  uint64_t sequences = 0;
  // The others have all of its layers, and this one of them (by its place among them) layers of
  // each KV group that it has any of: its sequences are the ones.
  bool covers = false;
  uint32_t main = 0;
};

// In which order these many sources are asked in a round. In the end (not `ahead`) the main one,
// which says which sequences there are, comes last: by then all their pages are there.
inline std::vector<uint32_t> AskedInTurn(size_t sources, bool ahead, uint32_t main) {
  std::vector<uint32_t> turn;
  for (uint32_t source = 0; source < sources; ++source) {
    if (ahead || source != main) {
      turn.push_back(source);
    }
  }
  if (!ahead && main < sources) {
    turn.push_back(main);
  }
  return turn;
}

// Rounds follow one another, while the other stages serve, until one brings little: what is left
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
