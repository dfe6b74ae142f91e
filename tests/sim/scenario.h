// What a run consists of, all of it drawn from the seed before anything runs: the cluster, the
// clients' requests and the faults. A failing run shrinks by leaving out requests and faults.
#ifndef STRATA_TESTS_SIM_SCENARIO_H_
#define STRATA_TESTS_SIM_SCENARIO_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "strata/v1/shard.pb.h"
#include "tests/coordinator/engine/scripted_constraint.h"
#include "tests/sim/counts.h"

namespace strata::sim {

inline constexpr uint32_t kVocab = 127;
// Never in a prompt that is meant to be served: kNonFinite makes it come out as NaN, and the poison
// faults fail at it.
inline constexpr uint32_t kPoisonToken = kVocab - 1;

struct Fault {
  FaultKind kind{};
  TimePoint at{0};
  uint32_t target = 0;   // Which link or worker, modulo their number.
  nanoseconds lasts{0};  // 0: for good, of those that may.
  uint64_t random = 0;   // For what else the fault has to choose.
};

struct ClientRequest {
  TimePoint at{0};
  std::string id;
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 1;
  int32_t priority = 0;
  bool guaranteed = false;
  v1::SequenceParams params;
  std::vector<uint32_t> stop_ids;
  std::optional<ConstraintScript> held;       // What the answer is held to.
  bool replace = false;                       // Ends a live request of the same id.
  std::optional<nanoseconds> deadline_after;  // From `at`.
  std::optional<nanoseconds> cancel_after;    // From `at`.
  uint32_t retries = 0;                       // How often it is sent again after UNAVAILABLE.
};

struct Scenario {
  uint64_t seed = 0;
  uint32_t stages = 1;
  uint32_t workers = 1;  // At least `stages`.
  uint32_t layers = 1;   // At least `stages`.
  uint64_t kv_pages = 8;
  double kv_watermark = 0;
  bool prefix_cache = true;
  uint32_t context = 160;
  uint32_t max_batch_tokens = 32;
  uint32_t max_batch_items = 8;
  uint32_t max_sessions = 16;
  uint32_t max_queued_requests = 8;
  nanoseconds step_timeout{0};
  nanoseconds lease{0};
  nanoseconds latency{0};     // Least of a message.
  nanoseconds jitter{0};      // Most on top of it.
  uint32_t forks_one_in = 0;  // How often a new sequence begins as a fork; 0: never.
  // Two stages of many layers whose rows take long: prompts beside answers go by waves.
  bool waves = false;
  // Layers of lost and leaving workers go to others (RECOVERY_MOVE).
  bool moves = false;
  // Loads take what workers' caches have, and what these lack from other workers; else they take
  // some time. Layers are kept on `standby` other workers each.
  bool caches = false;
  uint32_t standby = 0;
  // Workers that compute a stage together: of each stage (--ranks), or of some (--layers a+b:0-3);
  // 1: of none.
  uint32_t ranks = 1;
  bool ranks_everywhere = false;
  // Steps carry drafts, of which so many in a hundred are right.
  bool drafts = false;
  uint32_t drafts_right = 0;
  // A model guesses for it too: as often right, soon or late.
  bool draft_model = false;
  // The only faults there are move the model from workers that all stay: no request may fail by it.
  bool moves_only = false;
  // The only faults there are come from poison: a request without it must not fail by any.
  bool poison_only = false;
  std::vector<ClientRequest> requests;
  std::vector<Fault> faults;
};

// What a worker computes so many rows in, when it is as fast as it should be.
inline nanoseconds StepTime(uint32_t rows, uint32_t machine) {
  return std::chrono::microseconds((100 + 10 * rows) * (1 + machine % 3));
}

// The likeliest token, always.
v1::SequenceParams GreedyParams();
// A function of the seed, and of whether steps carry drafts whatever that is.
Scenario MakeScenario(uint64_t seed, bool with_drafts = false);

// Indices into a scenario's lists.
struct Part {
  std::vector<size_t> requests;
  std::vector<size_t> faults;
};
Part Whole(const Scenario& scenario);
// The scenario with these requests and faults only.
Scenario Reduced(const Scenario& scenario, const Part& part);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SCENARIO_H_
