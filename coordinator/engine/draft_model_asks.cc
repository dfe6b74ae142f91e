#include "coordinator/engine/draft_model_asks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/engine/step_pace.h"

namespace strata {

void DraftModelAsks::Ask(const SchedulerSnapshot& view, TimePoint now) {
  if (!pace_.may_ask(now)) {
    return;
  }
  const uint32_t batches = PaceOf(view).batches;
  const double decoding = std::max(1u, view.decoding);
  const auto cycle_ms = [&](uint32_t guesses) {
    const double rows = decoding * (1 + guesses) / batches;
    return CycleMs(view, batches,
                   {static_cast<uint32_t>(rows), rows * view.decoding_attended / decoding});
  };
  for (const auto& [rank, running] : sessions_->running()) {
    LiveSession& session = *running;
    const uint32_t known = session.known();
    if (!session.guesses.MayAsk(known) || session.paused || !session.kv.claim().has_value()) {
      continue;
    }
    if (!session.decoding()) {
      if (session.generated() == 0 && !AskFor(session, 1, now)) {
        return;
      }
      continue;
    }
    if (known != session.kv.sent() + 1) {
      continue;
    }
    const uint32_t most = std::min(session.most_drafts(), kMostDrafts);
    const uint32_t worth =
        session.drafts.strong() ? 0 : pace_.Worth(session.drafts.guess_chance(), most, cycle_ms);
    if (worth == 0) {
      session.guesses.Skip(known);
    } else if (!AskFor(session, worth, now)) {
      return;
    }
  }
}

bool DraftModelAsks::AskFor(LiveSession& session, uint32_t most, TimePoint now) {
  const SessionRequest& request = session.request;
  if (!host_->AskDraftModel({.key = request.key,
                             .cache_salt = request.cache_salt,
                             .params = request.params,
                             .tokens = session.tokens,
                             .most = most})) {
    pace_.NoteNone(now);
    return false;
  }
  session.guesses.Asked(session.known(), most, now, now + pace_.Patience(most));
  return true;
}

void DraftModelAsks::Take(LiveSession& session, uint32_t known, std::vector<uint32_t> guesses,
                          TimePoint now) {
  const auto asked = session.guesses.Answered();
  if (!asked.has_value()) {
    return;
  }
  if (guesses.empty()) {
    pace_.NoteNone(now);
    return;
  }
  if (known > session.prompt_tokens) {  // Else it had the prompt to read.
    pace_.Observe(asked->first, now - asked->second);
  }
  if (known == session.known()) {
    session.drafts.Guess(std::move(guesses));
  }
}

}  // namespace strata
