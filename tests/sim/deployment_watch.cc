#include "tests/sim/deployment_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "tests/sim/page_recount.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {
namespace {

uint64_t PagesFor(uint64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

bool SamePlaces(const v1::Plan& a, const v1::Plan& b) {
  const auto& x = OnlyPipeline(a).stages();
  const auto& y = OnlyPipeline(b).stages();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const v1::PlanStage& s, const v1::PlanStage& t) {
                      return SameRanks(s, t) && s.first_layer() == t.first_layer();
                    });
}

bool AllIsFree(const EngineSnapshot& snapshot) {
  return snapshot.state == PipelineState::kRunning && snapshot.steps_in_flight == 0 &&
         snapshot.sessions.empty() &&
         std::all_of(snapshot.kv.begin(), snapshot.kv.end(),
                     [](const KvSnapshot& kv) { return kv.free + kv.cached == kv.total; });
}

// The worker of a stage, while it is the one that the plan names.
const SimWorker* WorkerOf(const Cluster& cluster, const v1::PlanStage& stage) {
  const v1::PlanRank& rank = FirstRank(stage);
  const SimWorker* worker = cluster.worker(MachineOf(rank.node()));
  return worker->up() && worker->incarnation() == rank.incarnation() ? worker : nullptr;
}

}  // namespace

bool IsIdle(const Deployment& deployment, TimePoint now) {
  return deployment.engine() != nullptr && AllIsFree(deployment.engine()->Snapshot(now));
}

void DeploymentWatch::Look(bool by_time) {
  CountState();
  if (deployment_->engine() == nullptr) {
    seen_ = EngineCounters();
    pipeline_ = PipelineState::kNew;
    return;
  }
  const EngineSnapshot snapshot = deployment_->engine()->Snapshot(world().now());
  CheckMemory(snapshot);
  CheckPages(snapshot);
  CountWaiting(snapshot);
  CheckIdle(snapshot);
  if (by_time && snapshot.counters.faults > seen_.faults) {
    world().Count(Rule::kStepTimeout);
  }
  CountWork(snapshot.counters);
  if (snapshot.state == PipelineState::kDown && pipeline_ != PipelineState::kDown) {
    world().Count(Rule::kPipelineDown);
    world().Tell([&] { return "the pipeline is down"; });
  }
  pipeline_ = snapshot.state;
}

void DeploymentWatch::CountState() {
  const DeploymentState before = std::exchange(state_, deployment_->state());
  const bool held = deployment_->engine() != nullptr;
  const bool resumed = before != state_ && state_ == DeploymentState::kReady &&
                       (awaiting_ || before == DeploymentState::kResizing);
  if (resumed && awaiting_) {
    world().Count(Rule::kAwaited);
  }
  if (resumed && deployment_->engine()->live_sessions() > 0) {
    world().Count(Rule::kResumed);
    if (places_.has_value() && !SamePlaces(*places_, deployment_->plan()))
      world().Count(Rule::kMoved);
  }
  if (state_ == DeploymentState::kReady) {
    places_ = deployment_->plan();
  }
  awaiting_ = held && (state_ == DeploymentState::kWaiting ||
                       (awaiting_ && state_ == DeploymentState::kLoading));
  const std::string reason = ReasonOf(deployment_->problem());
  if (before != state_ && state_ == DeploymentState::kWaiting) {
    if (reason == "NODE_LOST") world().Count(Rule::kNodeLost);
    if (reason == "NODE_STOPPED") world().Count(Rule::kNodeLeft);
  }
  if (before != state_ && state_ == DeploymentState::kFailed) {
    world().Count(Rule::kLoadFailed);
  }
  if (std::exchange(prepares_, deployment_->prepares()) && !prepares_) {
    const bool given_up = state_ == DeploymentState::kReady && !deployment_->move_problem().ok();
    if (given_up || state_ == DeploymentState::kLoading) {
      world().Count(given_up ? Rule::kMoveAbandoned : Rule::kSwitched);
    }
  }
  const bool undone = !deployment_->resize_problem().ok();
  if (undone && !std::exchange(undone_, undone)) {
    world().Count(Rule::kResizeUndone);
  }
  undone_ = undone;
  if (before != state_) {
    world().Tell([&] {
      const std::string why =
          deployment_->problem().ok() ? "" : ": " + std::string(deployment_->problem().message());
      return "deployment " + std::to_string(deployment_->id()) + " is " +
             DeploymentStateName(state_) + why;
    });
  }
}

void DeploymentWatch::CheckMemory(const EngineSnapshot& snapshot) {
  for (const KvSnapshot& kv : snapshot.kv) {
    if (kv.free + kv.live + kv.cached + kv.fenced != kv.total || kv.free > kv.total) {
      world().Fail("the ledger's sum does not hold at stage " + std::to_string(kv.stage));
    }
  }
  for (const SessionSnapshot& session : snapshot.sessions) {
    if (session.guaranteed && session.state == "preempted") {
      world().Fail("guaranteed session " + session.request_id + " was preempted");
    }
  }
  if (snapshot.counters.ledger_mismatches > seen_.ledger_mismatches) {
    world().Fail("ledger and stages disagree: " +
                 (snapshot.problems.empty() ? "" : snapshot.problems.back().what));
  }
}

void DeploymentWatch::CountWaiting(const EngineSnapshot& snapshot) {
  const auto waits = [](const SessionSnapshot& session) {
    return session.state == "queued" || session.state == "preempted";
  };
  const auto queued = std::find_if(snapshot.sessions.begin(), snapshot.sessions.end(), waits);
  if (queued == snapshot.sessions.end() || snapshot.state != PipelineState::kRunning) {
    return;
  }
  const uint64_t need = PagesFor(uint64_t{queued->prompt_tokens} + queued->generated_tokens + 1);
  for (const KvSnapshot& kv : snapshot.kv) {
    if (need > kv.free) {
      world().Count(need > kv.free + kv.fenced ? Rule::kReservationWaited : Rule::kCommitWaited);
      return;
    }
  }
}

void DeploymentWatch::CheckPages(const EngineSnapshot& snapshot) {
  std::string wrong = RecountLive(snapshot);
  const auto& stages = OnlyPipeline(deployment_->plan()).stages();
  for (int s = 0; s < stages.size() && wrong.empty(); ++s) {
    const SimWorker* worker = WorkerOf(*cluster_, stages[s]);
    if (snapshot.state == PipelineState::kRunning && worker != nullptr) {
      wrong =
          RecountStage(snapshot, static_cast<uint32_t>(s), worker->pages_in_use(deployment_->id()));
    }
  }
  if (!wrong.empty()) {
    world().Fail(wrong);
  }
}

// When the ledger says that all is free, the stages must have nothing but what is cached.
void DeploymentWatch::CheckIdle(const EngineSnapshot& snapshot) {
  if (!AllIsFree(snapshot)) {
    return;
  }
  const auto& stages = OnlyPipeline(deployment_->plan()).stages();
  for (int s = 0; s < stages.size(); ++s) {
    const SimWorker* worker = WorkerOf(*cluster_, stages[s]);
    if (worker == nullptr) {
      continue;
    }
    const uint64_t sequences = worker->sequences(deployment_->id());
    const uint64_t pages = worker->pages_in_use(deployment_->id());
    if (sequences != snapshot.cached_sequences ||
        pages > snapshot.kv[static_cast<size_t>(s)].cached) {
      world().Fail(worker->name() + " holds " + std::to_string(sequences) + " sequences in " +
                   std::to_string(pages) + " KV pages that the ledger says are free");
    }
  }
}

void DeploymentWatch::CountWork(const EngineCounters& counters) {
  auto count = [this](Rule rule, uint64_t now, uint64_t before) {
    for (uint64_t i = before; i < now; ++i) {
      world().Count(rule);
    }
  };
  count(Rule::kReplay, counters.replays, seen_.replays);
  // Where no fault and no Fork of the meddler's explains it, a draft would be what is left behind.
  const auto& faults = world().counts.faults;
  if (counters.replays > seen_.replays && world().scenario.drafts &&
      world().scenario.forks_one_in == 0 &&
      std::all_of(faults.begin(), faults.end(), [](uint64_t count) { return count == 0; })) {
    world().Fail("a sequence was computed again, and no fault explains it");
  }
  count(Rule::kRebuild, counters.rebuilds, seen_.rebuilds);
  count(Rule::kPreempted, counters.preemptions, seen_.preemptions);
  count(Rule::kDraftAccepted, counters.drafts_accepted, seen_.drafts_accepted);
  count(Rule::kDraftRejected, counters.tokens_drafted - counters.drafts_accepted,
        seen_.tokens_drafted - seen_.drafts_accepted);
  count(Rule::kStepAhead, counters.steps_ahead, seen_.steps_ahead);
  count(Rule::kStepVoid, counters.steps_void, seen_.steps_void);
  count(Rule::kPrefixHit, counters.prefix_hits, seen_.prefix_hits);
  count(Rule::kWaves, counters.slices_sent, seen_.slices_sent);
  count(Rule::kPrefixEvicted, counters.prefix_evictions, seen_.prefix_evictions);
  // Ranks that were joined anew may have lost what the cache holds.
  if (counters.prefix_forks_failed > seen_.prefix_forks_failed && world().scenario.ranks == 1 &&
      world().counts.faults[static_cast<size_t>(FaultKind::kFlipBit)] == 0) {
    world().Fail("a stage has not what the prefix cache offered, and no fault explains it");
  }
  count(Rule::kFault, counters.faults, seen_.faults);
  if (world().scenario.moves_only && counters.faults > seen_.faults) {
    world().Fail("a move of the model was a fault of its pipeline");
  }
  count(Rule::kOffender, counters.offenders, seen_.offenders);
  count(Rule::kFenceTimeout, counters.fences_failed, seen_.fences_failed);
  count(Rule::kResultDiscarded, counters.results_discarded, seen_.results_discarded);
  seen_ = counters;
}

}  // namespace strata::sim
