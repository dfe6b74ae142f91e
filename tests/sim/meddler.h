// Stands between the engine and the first stage. It turns some of the engine's new sequences into
// forks of older ones that begin alike, as a prefix cache does; and on demand it does what a faulty
// sender would: forks from the wrong source, or adds items that were sent before. What it added is
// taken out of the results, so that the engine knows nothing of it.
#ifndef STRATA_TESTS_SIM_MEDDLER_H_
#define STRATA_TESTS_SIM_MEDDLER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/fingerprint.h"
#include "common/frame.h"
#include "tests/sim/cluster.h"
#include "tests/sim/world.h"

namespace strata::sim {

// Rows and items on top of the engine's that a step may come to have.
inline constexpr uint32_t kMeddledRows = 128;
inline constexpr uint32_t kMeddledItems = 4;

class Meddler {
 public:
  // `root`: the fingerprint of no tokens.
  Meddler(World* world, Fingerprint root) : world_(world), root_(root) {}

  // Of kForkWrongSource, kRepeatItem or kStaleItem: strikes at the first step that allows it.
  void Arm(const Fault& fault) { armed_.push_back(fault); }

  // Every step of the engine on its way to the first stage, in order.
  void OnSend(StepMessage* step);
  // Every result on its way to the engine.
  void OnResult(ResultMessage* result);

 private:
  struct Sent {
    std::string request_id;
    std::vector<uint32_t> ids;
    v1::StepItem first;    // The item that created it.
    bool created = false;  // By its result.
    bool released = false;
    bool sliced = false;  // Some layers of it are computed later than others.
  };
  struct Added {
    int commands = 0;
    int items = 0;
  };

  struct Source {
    uint64_t generation = 0;
    uint32_t length = 0;  // 0: there is none.
  };

  void NewEpoch(uint64_t epoch);
  void Fork(StepMessage* step, bool wrong, Added* added);
  // What the item's sequence could be forked from: with its own first tokens, or with wrong ones.
  Source FindSource(const v1::StepItem& item, bool wrong) const;
  void Repeat(StepMessage* step, uint64_t random, Added* added);
  void AddStale(StepMessage* step, uint64_t random, Added* added);
  void AddItem(StepMessage* step, v1::StepItem item, Added* added);
  // The step's first `items` items, which are the engine's own.
  void Remember(const StepMessage& step, int items);

  World* const world_;
  const Fingerprint root_;
  std::vector<Fault> armed_;
  uint64_t epoch_ = 0;
  std::map<uint64_t, Sent> sent_;    // By generation, of this epoch's steps.
  std::deque<v1::StepItem> recent_;  // Newest last.
  std::map<uint64_t, Added> added_;  // By step.
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_MEDDLER_H_
