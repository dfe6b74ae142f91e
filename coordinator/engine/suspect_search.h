// The search for the session that breaks a stage. Steps that are lost make suspects of the sessions
// they carried; these are computed apart from all others, half of them at a time, until steps with
// them come through or one is left that breaks them alone.
#ifndef STRATA_COORDINATOR_ENGINE_SUSPECT_SEARCH_H_
#define STRATA_COORDINATOR_ENGINE_SUSPECT_SEARCH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/engine/result_check.h"
#include "coordinator/engine/scheduler.h"

namespace strata {

// Sessions are named by the engine's numbers. One thread.
class SuspectSearch {
 public:
  // The steps in flight are lost. They carried these sessions, up to so many of their tokens; none
  // of the sessions has ended. These are the suspects from now on, and no others, since what was
  // lost before is explained by them. A fault that lost no session's step says nothing.
  void NoteLost(const std::map<uint64_t, uint32_t>& lost);
  // Steps came through with all that `session` has committed, `tokens` of its tokens.
  void NoteCommitted(uint64_t session, uint32_t tokens);
  void Forget(uint64_t session);  // It ended.

  // Those that were found to break a stage, and are to fail; ascending.
  std::vector<uint64_t> Offenders() const;
  // Times in a row that steps with `session` were lost.
  int Faults(uint64_t session) const;

  // Leaves in `view` what may be computed beside these steps while there are suspects.
  void TryApart(const std::deque<SentStep>& in_flight, SchedulerSnapshot* view);

 private:
  struct Suspect {
    int faults = 0;         // In a row, each with a step of this session in flight.
    uint32_t until = 0;     // It is a suspect until it has this many tokens again.
    bool on_trial = false;  // It is computed now, with none but others on trial.
    bool offends = false;
  };

  // Whether these steps carry a session that is on trial.
  bool TrialUnderWay(const std::deque<SentStep>& in_flight) const;

  std::map<uint64_t, Suspect> suspects_;  // By session.
};

// What the session of `request_id` fails with once it was found to break a stage: steps with it
// were lost `faults` times in a row. `nodes`: by stage; `cause`: the last fault.
absl::Status BreaksStage(const std::string& request_id, int faults,
                         const std::vector<std::string>& nodes, const absl::Status& cause);

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SUSPECT_SEARCH_H_
