#include "coordinator/engine/session_ends.h"

#include <memory>
#include <span>
#include <string>

#include "common/status.h"

namespace strata {

SessionEnds::SessionEnds(const Fence& fence, SessionQueue* sessions, SequenceBook* book,
                         RecentAnswers* recent, SuspectSearch* suspects, EngineCounters* counters)
    : fence_(fence),
      sessions_(sessions),
      book_(book),
      recent_(recent),
      suspects_(suspects),
      counters_(counters) {}

void SessionEnds::End(LiveSession& session) {
  book_->Close(session, /*may_keep=*/fence_.running());
  suspects_->Forget(session.id);
  sessions_->Erase(session);
}

void SessionEnds::Finish(LiveSession& session, const char* reason, TimePoint now) {
  FinishInfo info;
  info.reason = reason;
  info.prompt_tokens = session.prompt_tokens;
  info.completion_tokens = session.generated();
  info.cached_tokens = session.kv.cached_tokens();
  info.queued = session.started.value_or(now) - session.arrived;
  info.first_token = session.first_token.value_or(session.arrived) - session.arrived;
  info.total = now - session.arrived;
  info.steps = session.steps;
  info.times = session.times;
  info.preemptions = session.preemptions;
  info.drafted_tokens = session.drafts.drafted();
  info.accepted_tokens = session.drafts.accepted();
  if (session.drafts.any() && session.generated() > 0) {
    // Without the last one, which no stage has computed: it might be one that breaks them.
    recent_->Add(session.request.cache_salt,
                 std::span(session.tokens).subspan(session.prompt_tokens, session.generated() - 1));
  }
  const std::shared_ptr<SessionSink> sink = session.sink;
  End(session);
  ++counters_->done;
  sink->OnDone(info);
}

void SessionEnds::Fail(LiveSession& session, const absl::Status& why) {
  v1::ErrorDetail detail = DetailOf(why);
  detail.set_request_id(session.request.request_id);
  const std::shared_ptr<SessionSink> sink = session.sink;
  End(session);
  ++counters_->failed;
  sink->OnFailed(StatusOf(detail));
}

void SessionEnds::FailAll(const absl::Status& why) {
  while (!sessions_->all().empty()) {
    Fail(sessions_->all().begin()->second, why);
  }
}

void SessionEnds::FailOffenders(const std::vector<std::string>& nodes, const absl::Status& cause) {
  for (const uint64_t id : suspects_->Offenders()) {
    ++counters_->offenders;
    LiveSession& session = sessions_->At(id);
    Fail(session, BreaksStage(session.request.request_id, suspects_->Faults(id), nodes, cause));
  }
}

void SessionEnds::ExpireDeadlines(TimePoint now) {
  while (LiveSession* session = sessions_->Expired(now)) {
    const std::string where =
        session->started.has_value()
            ? "after " + std::to_string(session->generated()) + " generated tokens"
            : "while the request was queued";
    Fail(*session, Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                         "the deadline passed " + where)
                       .Hint("allow more time, or ask for fewer tokens"));
  }
}

}  // namespace strata
