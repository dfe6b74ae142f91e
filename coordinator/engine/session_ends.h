// How sessions end: what they have goes back to its owners, then their sinks are told.
#ifndef STRATA_COORDINATOR_ENGINE_SESSION_ENDS_H_
#define STRATA_COORDINATOR_ENGINE_SESSION_ENDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/fence.h"
#include "coordinator/engine/recent_answers.h"
#include "coordinator/engine/sequence_book.h"
#include "coordinator/engine/session_queue.h"
#include "coordinator/engine/suspect_search.h"

namespace strata {

// One thread. A session that ended does not exist any more.
class SessionEnds {
 public:
  // All outlive this. It counts sessions that are done, that failed, and that broke a stage. Of
  // those that had drafts `recent` is told the answers.
  SessionEnds(const Fence& fence, SessionQueue* sessions, SequenceBook* book, RecentAnswers* recent,
              SuspectSearch* suspects, EngineCounters* counters);

  // OnDone, with this reason.
  void Finish(LiveSession& session, const char* reason, TimePoint now);
  // OnFailed, with `why` and its request's id.
  void Fail(LiveSession& session, const absl::Status& why);
  void FailAll(const absl::Status& why);
  // Those that were found to break a stage. `nodes`: by stage; `cause`: the last fault.
  void FailOffenders(const std::vector<std::string>& nodes, const absl::Status& cause);
  // Those whose deadline has passed.
  void ExpireDeadlines(TimePoint now);

 private:
  void End(LiveSession& session);

  const Fence& fence_;
  SessionQueue* const sessions_;
  SequenceBook* const book_;
  RecentAnswers* const recent_;
  SuspectSearch* const suspects_;
  EngineCounters* const counters_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SESSION_ENDS_H_
