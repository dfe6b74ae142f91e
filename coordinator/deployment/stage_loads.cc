#include "coordinator/deployment/stage_loads.h"

#include <utility>

#include "common/plan.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/deployment/load_messages.h"

namespace strata {

bool StageLoads::Stays(int stage) const {
  return of_ == Of::kNext && StageStays(placed_->plan(), plan(), stage);
}

std::string StageLoads::Send() {
  watch_.Begin(host_->Now());
  if (of_ == Of::kNext) {
    host_->OnPrepared(placed_->id(), &plan());
  } else {
    host_->OnPlacement(placed_->id(), plan(), true, false);
  }
  for (int i = 0; i < OnlyPipeline(plan()).stages_size(); ++i) {
    if (std::string missing = SendStage(i); !missing.empty()) {
      return missing;
    }
  }
  return "";
}

std::string StageLoads::SendStage(int stage) {
  const v1::PlanStage& planned = OnlyPipeline(plan()).stages(stage);
  const bool stays = Stays(stage);
  const v1::Load load = stays ? v1::Load() : MakeLoad(stage);
  for (int i = 0; i < planned.ranks_size(); ++i) {
    const v1::PlanRank& rank = planned.ranks(i);
    if (stays) {
      v1::LoadProgress loaded;
      loaded.set_phase(v1::LoadProgress::PHASE_READY);
      watch_.OnProgress(rank.node(), loaded, host_->Now());
      continue;
    }
    v1::CoordinatorMessage message;
    *message.mutable_load() = load;
    if (message.load().has_ranks()) {
      message.mutable_load()->mutable_ranks()->set_rank(static_cast<uint32_t>(i));
    }
    if (!host_->SendToNode(rank.node(), rank.incarnation(), std::move(message))) {
      return rank.node();
    }
  }
  return "";
}

v1::Load StageLoads::MakeLoad(int stage) const {
  NextHop next{.node = "", .incarnation = host_->coordinator_incarnation(), .address = ""};
  if (stage + 1 < OnlyPipeline(plan()).stages_size()) {
    const v1::PlanRank& rank = FirstRank(OnlyPipeline(plan()).stages(stage + 1));
    next = {rank.node(), rank.incarnation(), host_->AddressOf(rank.node())};
  }
  // Half, so that a link that cannot be opened is reported before the fence is given up.
  v1::Load load = MakeStageLoad(placed_->Subject(plan()), stage, next, options_.max_batch_items,
                                options_.step_timeout / 2);
  load.set_beside(of_ == Of::kNext);
  const v1::PlanStage& planned = OnlyPipeline(plan()).stages(stage);
  if (planned.ranks_size() > 1) {
    for (const v1::PlanRank& rank : planned.ranks()) {
      v1::RankOfLoad* of = load.mutable_ranks()->add_of();
      of->mutable_worker()->set_node(rank.node());
      of->mutable_worker()->set_incarnation(rank.incarnation());
      of->mutable_worker()->set_address(host_->AddressOf(rank.node()));
      of->set_share_begin(rank.share_begin());
      of->set_share_end(rank.share_end());
    }
  }
  return load;
}

void StageLoads::Unload(const v1::PlanRank& rank, uint64_t loaded_epoch) const {
  v1::CoordinatorMessage message;
  message.mutable_unload()->set_deployment(placed_->id());
  message.mutable_unload()->set_loaded_epoch(loaded_epoch);
  host_->SendToNode(rank.node(), rank.incarnation(), std::move(message));
}

void StageLoads::TakeBack() {
  for (int i = 0; i < OnlyPipeline(plan()).stages_size(); ++i) {
    if (Stays(i)) {
      continue;
    }
    for (const v1::PlanRank& rank : OnlyPipeline(plan()).stages(i).ranks()) {
      Unload(rank, of_ == Of::kNext ? plan().epoch() : 0);
    }
  }
  if (of_ == Of::kNext) {
    host_->OnPrepared(placed_->id(), nullptr);
  } else {
    host_->OnPlacement(placed_->id(), plan(), false, false);
  }
}

void StageLoads::TakeOver(const StageLoads& next) {
  watch_ = next.watch_;
  host_->OnPrepared(placed_->id(), nullptr);
  host_->OnPlacement(placed_->id(), plan(), true, false);
}

void StageLoads::OnProgress(const std::string& node, const v1::LoadProgress& progress) {
  watch_.OnProgress(node, progress, host_->Now());
}

absl::Status StageLoads::Late(TimePoint now) const {
  if (options_.load_timeout <= nanoseconds(0)) {
    return absl::OkStatus();
  }
  const Waiting wait = watch_.WaitFor(*watch_.Slowest(plan()), placed_->model()->name);
  if (now - wait.since < wait.limit) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kDeadlineExceeded, "LOAD_TIMEOUT",
               "waited in vain for " + wait.what + ": no progress for " +
                   FormatDuration(now - wait.since))
      .Node(wait.node)
      .Limit("load_timeout=" + FormatDuration(options_.load_timeout))
      .Hint(wait.hint);
}

std::optional<TimePoint> StageLoads::NextLate() const {
  if (options_.load_timeout <= nanoseconds(0)) {
    return std::nullopt;
  }
  return watch_.SilentSince(*watch_.Slowest(plan())) + options_.load_timeout;
}

std::vector<Waiting> StageLoads::Waits() const {
  std::vector<Waiting> waits;
  for (const LoadPart& part : LoadPartsOf(plan())) {
    if (!watch_.Ready(part)) {
      waits.push_back(watch_.WaitFor(part, placed_->model()->name));
    }
  }
  return waits;
}

}  // namespace strata
