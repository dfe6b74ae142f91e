#include "worker/service/kv_carrier.h"

#include <algorithm>
#include <chrono>

#include "common/status.h"

namespace strata {

absl::StatusOr<TakenKv> KvCarrier::Ask(const FenceStep& step, uint32_t round, nanoseconds timeout,
                                       Cancellation* cancel) const {
  v1::CarryKvRequest request;
  RETURN_IF_ERROR(queue_->BetweenSteps([&](ShardRunner* runner) {
    if (step.ahead && round == 0) {
      runner->ForgetTakenKv();
    }
    request = runner->DescribeKv();
    return absl::OkStatus();
  }));
  request.set_expected_node(step.kv_from.worker().node());
  request.set_expected_incarnation(step.kv_from.worker().incarnation());
  request.set_deployment(place_.deployment);
  request.set_loaded_epoch(step.kv_from.loaded_epoch());
  request.set_round(round);
  request.set_final(!step.ahead);
  RETURN_IF_ERROR(dialer_->CarryKv(
      step.kv_from.worker().address(), request,
      std::max(milliseconds(1), std::chrono::ceil<milliseconds>(timeout)), cancel,
      [this](const v1::CarryKvPart& part) {
        return queue_->BetweenSteps([&](ShardRunner* runner) { return runner->TakeKv(part); });
      }));
  TakenKv taken;
  RETURN_IF_ERROR(queue_->BetweenSteps([&](ShardRunner* runner) {
    taken = runner->taken_kv();
    return absl::OkStatus();
  }));
  return taken;
}

bool KvCarrier::Carry(const FenceStep& step, Cancellation* cancel) const {
  const TimePoint begin = clock_->Now();
  CarryRounds rounds;
  absl::Status status;
  do {
    const auto taken = Ask(step, rounds.round(), begin + step.timeout - clock_->Now(), cancel);
    status = taken.status();
    if (status.ok()) {
      rounds.Done(*taken);
    }
  } while (status.ok() && step.ahead && rounds.More());
  LogCarried(place_, {.epoch = step.epoch,
                      .ahead = step.ahead,
                      .from = step.kv_from.worker().node(),
                      .taken = rounds.taken(),
                      .took = clock_->Now() - begin,
                      .status = status});
  return status.ok();
}

}  // namespace strata
