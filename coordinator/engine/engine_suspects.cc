// Who broke a stage. Steps that are lost make suspects of the sessions they carried; these are
// computed apart from all others, half of them at a time, until steps with them come through or one
// is left that breaks them alone. It fails; nobody else does.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/status.h"
#include "coordinator/engine/engine_impl.h"
#include "coordinator/engine/fault_policy.h"

namespace strata {

void Engine::Impl::NoteSuspects() {
  std::map<uint64_t, uint32_t> lost;  // Sessions, and how far their steps went.
  for (const SentStep& step : in_flight_) {
    for (const SentItem& item : step.items) {
      if (Find(item.session) != nullptr) {
        uint32_t& end = lost[item.session];
        end = std::max(end, item.position + item.rows);
      }
    }
  }
  if (lost.empty()) {
    return;  // A fault between steps says nothing of any session.
  }
  for (auto& [id, session] : sessions_) {
    const auto it = lost.find(id);
    if (it == lost.end()) {
      session.Clear();  // What was lost before is explained by those in flight now.
      continue;
    }
    session.on_trial = false;
    session.suspect_until = std::max(session.suspect_until, it->second);
    session.offends =
        ++session.faults > kMaxFaultsWithoutProgress && fault_policy::IsOffender(lost.size());
  }
}

void Engine::Impl::FailOffender(const absl::Status& cause) {
  std::vector<uint64_t> offenders;
  for (const auto& [id, session] : sessions_) {
    if (session.offends) {
      offenders.push_back(id);
    }
  }
  for (const uint64_t id : offenders) {
    ++counters_.offenders;
    Session& session = sessions_.at(id);
    FailSession(session, BreaksStage(session, DetailOf(cause)));
  }
}

absl::Status Engine::Impl::BreaksStage(const Session& session, const v1::ErrorDetail& cause) const {
  std::string what = "a stage";
  std::string stage;
  for (size_t s = 0; s < config_.stages.size(); ++s) {
    if (config_.stages[s].node == cause.node()) {
      stage = std::to_string(s);
      what = "stage " + stage + " on node \"" + cause.node() + "\"";
      break;
    }
  }
  Error error = Error(absl::StatusCode::kInternal, "REQUEST_BREAKS_STAGE",
                      "request \"" + session.request.request_id + "\" breaks " + what +
                          ": steps with it were lost " + std::to_string(session.faults) +
                          " times in a row, at last with it alone; last: " + cause.message())
                    .RequestId(session.request.request_id)
                    .Node(cause.node())
                    .Hint("see the log of strata-worker" +
                          (stage.empty() ? "" : " on \"" + cause.node() + "\"") +
                          "; send the request again only if it is mended");
  return stage.empty() ? error : std::move(error).Fact("stage", stage);
}

void Engine::Impl::TrySuspectsApart(SchedulerSnapshot* view) {
  if (!fault_policy::ComputesSuspectsApart()) {
    return;
  }
  std::vector<ReadySession> suspects;
  bool chosen = false;
  for (const ReadySession& ready : view->ready) {
    const Session& session = sessions_.at(ready.id);
    if (session.suspect_until > 0) {
      suspects.push_back(ready);
      chosen |= session.on_trial;
    }
  }
  if (suspects.empty() && !TrialUnderWay()) {
    return;  // None, or they wait for others, who go on meanwhile.
  }
  view->ready.clear();
  view->wave_rows = view->wave_items = view->wave_slices = 0;  // They wait.
  if (!in_flight_.empty()) {
    return;  // With nothing else in flight it is known whom a fault is about.
  }
  const size_t half = (suspects.size() + 1) / 2;
  view->decoding = 0;
  for (const ReadySession& ready : suspects) {
    Session& session = sessions_.at(ready.id);
    session.on_trial = chosen ? session.on_trial : view->ready.size() < half;
    if (session.on_trial) {
      view->decoding += ready.decoding ? 1 : 0;
      view->ready.push_back(ready);
    }
  }
  view->stages = 1;  // All in one step, whatever it takes.
  view->costs.clear();
}

bool Engine::Impl::TrialUnderWay() {
  for (const SentStep& step : in_flight_) {
    for (const SentItem& item : step.items) {
      const Session* session = Find(item.session);
      if (session != nullptr && session->on_trial) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace strata
