#include "coordinator/engine/step_sender.h"

#include <utility>

#include "common/check.h"

namespace strata {

StepSender::StepSender(const EngineConfig& config, const Fence& fence, StepsInFlight* in_flight,
                       StepMeter* meter, EngineHost* host, EngineCounters* counters)
    : config_(config),
      fence_(fence),
      in_flight_(in_flight),
      meter_(meter),
      host_(host),
      counters_(counters) {}

void StepSender::SendFence() {
  in_flight_->BeginEpoch();
  host_->SendFence(fence_.epoch());
}

std::vector<std::string> StepSender::UnfencedNodes() const {
  return fence_.fencing() ? host_->UnfencedNodes() : std::vector<std::string>();
}

OutgoingStep StepSender::Begin() {
  OutgoingStep step;
  step.sent = in_flight_->Begin();
  v1::StepFrame& header = step.message.header;
  header.set_deployment(config_.deployment);
  header.set_epoch(fence_.epoch());
  header.set_step(step.sent.step);
  header.set_committed_step(step.sent.committed_step);
  return step;
}

void StepSender::Send(OutgoingStep step, TimePoint now) {
  STRATA_CHECK(in_flight_->size() <= config_.stages.size());
  if (in_flight_->empty()) {
    meter_->Begin(now);
  }
  in_flight_->Add(std::move(step.sent), now);
  ++counters_->steps_sent;
  host_->SendStep(std::move(step.message));
}

}  // namespace strata
