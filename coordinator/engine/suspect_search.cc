#include "coordinator/engine/suspect_search.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "coordinator/engine/fault_policy.h"

namespace strata {

void SuspectSearch::NoteLost(const std::map<uint64_t, uint32_t>& lost) {
  if (lost.empty()) {
    return;
  }
  std::erase_if(suspects_, [&](const auto& suspect) { return !lost.contains(suspect.first); });
  for (const auto& [session, end] : lost) {
    Suspect& suspect = suspects_[session];
    suspect.on_trial = false;
    suspect.until = std::max(suspect.until, end);
    suspect.offends =
        ++suspect.faults > kMaxFaultsWithoutProgress && fault_policy::IsOffender(lost.size());
  }
}

void SuspectSearch::NoteCommitted(uint64_t session, uint32_t tokens) {
  const auto it = suspects_.find(session);
  if (it != suspects_.end() && tokens >= it->second.until) {
    suspects_.erase(it);
  }
}

void SuspectSearch::Forget(uint64_t session) { suspects_.erase(session); }

std::vector<uint64_t> SuspectSearch::Offenders() const {
  std::vector<uint64_t> offenders;
  for (const auto& [session, suspect] : suspects_) {
    if (suspect.offends) {
      offenders.push_back(session);
    }
  }
  return offenders;
}

int SuspectSearch::Faults(uint64_t session) const {
  const auto it = suspects_.find(session);
  return it == suspects_.end() ? 0 : it->second.faults;
}

void SuspectSearch::TryApart(const std::deque<SentStep>& in_flight, SchedulerSnapshot* view) {
  if (!fault_policy::ComputesSuspectsApart()) {
    return;
  }
  if (!suspects_.empty()) {
    view->ahead.reset();
    for (ReadySession& ready : view->ready) {
      ready.drafts = 0;  // Nobody is to break a stage by tokens that are not its own.
    }
  }
  std::vector<ReadySession> ready_suspects;
  bool chosen = false;
  for (const ReadySession& ready : view->ready) {
    const auto it = suspects_.find(ready.id);
    if (it != suspects_.end()) {
      ready_suspects.push_back(ready);
      chosen |= it->second.on_trial;
    }
  }
  if (ready_suspects.empty() && !TrialUnderWay(in_flight)) {
    return;  // None, or they wait for others, who go on meanwhile.
  }
  view->ready.clear();
  view->wave_rows = view->wave_items = view->wave_slices = 0;  // They wait.
  if (!in_flight.empty()) {
    return;  // With nothing else in flight it is known whom a fault is about.
  }
  const size_t half = (ready_suspects.size() + 1) / 2;
  view->decoding = 0;
  for (const ReadySession& ready : ready_suspects) {
    Suspect& suspect = suspects_.at(ready.id);
    suspect.on_trial = chosen ? suspect.on_trial : view->ready.size() < half;
    if (suspect.on_trial) {
      view->decoding += ready.decoding ? 1 : 0;
      view->ready.push_back(ready);
    }
  }
  view->stages = 1;  // All in one step, whatever it takes.
  view->costs.clear();
}

bool SuspectSearch::TrialUnderWay(const std::deque<SentStep>& in_flight) const {
  for (const SentStep& step : in_flight) {
    for (const SentItem& item : step.items) {
      const auto it = suspects_.find(item.session);
      if (it != suspects_.end() && it->second.on_trial) {
        return true;
      }
    }
  }
  return false;
}

absl::Status BreaksStage(const std::string& request_id, int faults,
                         const std::vector<std::string>& nodes, const absl::Status& cause) {
  const v1::ErrorDetail last = DetailOf(cause);
  std::string what = "a stage";
  std::string stage;
  const auto node = std::find(nodes.begin(), nodes.end(), last.node());
  if (node != nodes.end()) {
    stage = std::to_string(node - nodes.begin());
    what = "stage " + stage + " on node \"" + last.node() + "\"";
  }
  Error error = Error(absl::StatusCode::kInternal, "REQUEST_BREAKS_STAGE",
                      "request \"" + request_id + "\" breaks " + what +
                          ": steps with it were lost " + std::to_string(faults) +
                          " times in a row, at last with it alone; last: " + last.message())
                    .RequestId(request_id)
                    .Node(last.node())
                    .Hint("see the log of strata-worker" +
                          (stage.empty() ? "" : " on \"" + last.node() + "\"") +
                          "; send the request again only if it is mended");
  return stage.empty() ? error : std::move(error).Fact("stage", stage);
}

}  // namespace strata
