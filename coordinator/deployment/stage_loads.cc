#include "coordinator/deployment/stage_loads.h"

#include <utility>

#include "common/plan.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/deployment/load_messages.h"

namespace strata {

std::string StageLoads::Send() {
  watch_.Begin(host_->Now());
  host_->OnPlacement(placed_->id(), placed_->plan(), true, false);
  for (int i = 0; i < OnlyPipeline(placed_->plan()).stages_size(); ++i) {
    v1::CoordinatorMessage message;
    *message.mutable_load() = MakeLoad(i);
    const v1::PlanRank& rank = placed_->RankOf(i);
    if (!host_->SendToNode(rank.node(), rank.incarnation(), std::move(message))) {
      return rank.node();
    }
  }
  return "";
}

v1::Load StageLoads::MakeLoad(int stage) const {
  NextHop next{.node = "", .incarnation = host_->coordinator_incarnation(), .address = ""};
  if (stage + 1 < OnlyPipeline(placed_->plan()).stages_size()) {
    const v1::PlanRank& rank = placed_->RankOf(stage + 1);
    next = {rank.node(), rank.incarnation(), host_->AddressOf(rank.node())};
  }
  // Half, so that a link that cannot be opened is reported before the fence is given up.
  return MakeStageLoad(placed_->Subject(), stage, next, options_.max_batch_items,
                       options_.step_timeout / 2);
}

void StageLoads::TakeBack() {
  for (int i = 0; i < OnlyPipeline(placed_->plan()).stages_size(); ++i) {
    v1::CoordinatorMessage message;
    message.mutable_unload()->set_deployment(placed_->id());
    const v1::PlanRank& rank = placed_->RankOf(i);
    host_->SendToNode(rank.node(), rank.incarnation(), std::move(message));
  }
  host_->OnPlacement(placed_->id(), placed_->plan(), false, false);
}

void StageLoads::OnProgress(const std::string& node, const v1::LoadProgress& progress) {
  watch_.OnProgress(node, progress, host_->Now());
}

absl::Status StageLoads::Late(TimePoint now) const {
  if (options_.load_timeout <= nanoseconds(0)) {
    return absl::OkStatus();
  }
  const Waiting wait = watch_.WaitFor(*watch_.Slowest(placed_->plan()), placed_->model()->name);
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
  return watch_.SilentSince(*watch_.Slowest(placed_->plan())) + options_.load_timeout;
}

std::vector<Waiting> StageLoads::Waits() const {
  std::vector<Waiting> waits;
  for (const v1::PlanStage& stage : OnlyPipeline(placed_->plan()).stages()) {
    if (!watch_.Ready(stage)) {
      waits.push_back(watch_.WaitFor(stage, placed_->model()->name));
    }
  }
  return waits;
}

}  // namespace strata
