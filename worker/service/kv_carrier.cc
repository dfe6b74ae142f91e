#include "worker/service/kv_carrier.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "common/status.h"

namespace strata {

absl::StatusOr<TakenKv> KvCarrier::Ask(const FenceStep& step, uint32_t source, uint32_t round,
                                       bool pages_only, nanoseconds timeout,
                                       Cancellation* cancel) const {
  const v1::KvSource& from = step.kv_from[source];
  v1::CarryKvRequest request;
  RETURN_IF_ERROR(queue_->BetweenSteps([&](ShardRunner* runner) {
    if (step.ahead && round == 0 && source == 0) {
      runner->ForgetTakenKv();
    }
    request = runner->DescribeKv();
    return absl::OkStatus();
  }));
  request.set_expected_node(from.worker().node());
  request.set_expected_incarnation(from.worker().incarnation());
  request.set_deployment(place_.deployment);
  request.set_loaded_epoch(from.loaded_epoch());
  request.set_round(round);
  request.set_final(!step.ahead);
  request.set_pages_only(pages_only);
  RETURN_IF_ERROR(
      dialer_->CarryKv(from.worker().address(), request,
                       std::max(milliseconds(1), std::chrono::ceil<milliseconds>(timeout)), cancel,
                       [this, source](const v1::CarryKvPart& part) {
                         return queue_->BetweenSteps(
                             [&](ShardRunner* runner) { return runner->TakeKv(source, part); });
                       }));
  return Taken();
}

TakenKv KvCarrier::Taken() const {
  TakenKv taken;
  queue_
      ->BetweenSteps([&](ShardRunner* runner) {
        taken = runner->taken_kv();
        return absl::OkStatus();
      })
      .IgnoreError();
  return taken;
}

bool KvCarrier::Carry(const FenceStep& step, Cancellation* cancel) const {
  const TimePoint begin = clock_->Now();
  CarryRounds rounds;
  absl::Status status;
  do {
    absl::StatusOr<TakenKv> taken = Taken();
    for (const uint32_t source : AskedInTurn(step.kv_from.size(), step.ahead, taken->main)) {
      const bool pages_only = !step.ahead && source != taken->main;
      taken = Ask(step, source, rounds.round(), pages_only, begin + step.timeout - clock_->Now(),
                  cancel);
      if (!taken.ok()) {
        break;
      }
    }
    status = taken.status();
    if (status.ok()) {
      rounds.Done(*taken);
    }
  } while (status.ok() && step.ahead && rounds.More());
  std::string from;
  for (const v1::KvSource& source : step.kv_from) {
    from += (from.empty() ? "" : ",") + source.worker().node();
  }
  LogCarried(place_, {.epoch = step.epoch,
                      .ahead = step.ahead,
                      .from = from,
                      .taken = rounds.taken(),
                      .took = clock_->Now() - begin,
                      .status = status});
  return status.ok() && rounds.taken().covers;
}

}  // namespace strata
