#include "coordinator/deployment/load_watch.h"

#include <algorithm>

#include "common/plan.h"

namespace strata {
namespace {

const char* PhaseName(v1::LoadProgress::Phase phase) {
  switch (phase) {
    case v1::LoadProgress::PHASE_FETCHING:
      return "fetching";
    case v1::LoadProgress::PHASE_PACKING:
      return "packing";
    case v1::LoadProgress::PHASE_READY:
      return "ready";
    case v1::LoadProgress::PHASE_FAILED:
      return "failed";
    default:
      return "waiting";
  }
}

}  // namespace

std::vector<LoadPart> LoadPartsOf(const v1::Plan& plan) {
  std::vector<LoadPart> parts;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    for (const v1::PlanRank& rank : stage.ranks()) {
      parts.push_back({&stage, &rank});
    }
  }
  return parts;
}

void LoadWatch::Begin(TimePoint now) {
  workers_.clear();
  sent_ = now;
}

void LoadWatch::Excuse(TimePoint now) {
  sent_ = now;
  for (auto& [node, worker] : workers_) {
    worker.advanced = now;
  }
}

void LoadWatch::OnProgress(const std::string& node, const v1::LoadProgress& progress,
                           TimePoint now) {
  const auto [it, fresh] = workers_.try_emplace(node);
  Worker& worker = it->second;
  if (fresh || worker.progress.phase() != progress.phase() ||
      worker.progress.done_bytes() != progress.done_bytes() ||
      worker.progress.fetched_bytes() != progress.fetched_bytes()) {
    worker.advanced = now;
  }
  worker.progress = progress;
  if (progress.phase() != v1::LoadProgress::PHASE_FAILED) {
    worker.ready = progress.phase() == v1::LoadProgress::PHASE_READY;
  }
}

const LoadWatch::Worker* LoadWatch::Find(const LoadPart& part) const {
  const auto it = workers_.find(part.rank->node());
  return it == workers_.end() ? nullptr : &it->second;
}

bool LoadWatch::Ready(const LoadPart& part) const {
  const Worker* worker = Find(part);
  return worker != nullptr && worker->ready;
}

bool LoadWatch::AllReady(const v1::Plan& plan) const {
  const std::vector<LoadPart> parts = LoadPartsOf(plan);
  return std::all_of(parts.begin(), parts.end(),
                     [this](const LoadPart& part) { return Ready(part); });
}

TimePoint LoadWatch::SilentSince(const LoadPart& part) const {
  const Worker* worker = Find(part);
  return worker == nullptr ? sent_ : worker->advanced;
}

std::optional<LoadPart> LoadWatch::Slowest(const v1::Plan& plan) const {
  std::optional<LoadPart> slowest;
  for (const LoadPart& part : LoadPartsOf(plan)) {
    if (!Ready(part) && (!slowest || SilentSince(part) < SilentSince(*slowest))) {
      slowest = part;
    }
  }
  return slowest;
}

std::vector<v1::LoadModelProgress::Worker> LoadWatch::Describe(const v1::Plan& plan, bool loading,
                                                               TimePoint now) const {
  std::vector<v1::LoadModelProgress::Worker> workers;
  for (const LoadPart& part : LoadPartsOf(plan)) {
    v1::LoadModelProgress::Worker& out = workers.emplace_back();
    out.set_node(part.rank->node());
    const Worker* worker = Find(part);
    const v1::LoadProgress progress = worker == nullptr ? v1::LoadProgress() : worker->progress;
    out.set_phase(PhaseName(progress.phase()));
    out.set_done_bytes(progress.done_bytes());
    out.set_total_bytes(progress.total_bytes() != 0      ? progress.total_bytes()
                        : part.rank->weight_bytes() != 0 ? part.rank->weight_bytes()
                                                         : part.stage->weight_bytes());
    out.set_fetched_bytes(progress.fetched_bytes());
    if (loading && !Ready(part)) {
      out.set_silent_s(ToMs(now - SilentSince(part)) / 1e3);
      out.set_limit_s(ToMs(limit_) / 1e3);
    }
  }
  return workers;
}

Waiting LoadWatch::WaitFor(const LoadPart& part, const std::string& model) const {
  const std::string& node = part.rank->node();
  std::string how = "has said nothing yet";
  if (const Worker* worker = Find(part)) {
    const v1::LoadProgress& progress = worker->progress;
    how = PhaseName(progress.phase());
    if (progress.total_bytes() > 0) {
      const double share =
          static_cast<double>(progress.done_bytes()) / static_cast<double>(progress.total_bytes());
      how += ", " + std::to_string(static_cast<int>(100 * std::min(1.0, share))) + " %";
    }
  }
  Waiting wait;
  wait.what = "node " + node + " to load layers " + std::to_string(part.stage->first_layer()) +
              "-" + std::to_string(part.stage->last_layer()) + " of model " + model + " (" + how +
              ")";
  wait.node = node;
  wait.model = model;
  wait.since = SilentSince(part);
  wait.limit = limit_;
  wait.hint = "see the log of strata-worker on " + node +
              " and start it again; `strata node drain " + node + "` and `strata model load " +
              model + "` place the model on others";
  return wait;
}

}  // namespace strata
