// What goes to the stages: the steps of an epoch, each of which is in flight from then on, and the
// fence that an epoch begins with.
#ifndef STRATA_COORDINATOR_ENGINE_STEP_SENDER_H_
#define STRATA_COORDINATOR_ENGINE_STEP_SENDER_H_

#include <string>
#include <vector>

#include "common/clock.h"
#include "common/frame.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/fence.h"
#include "coordinator/engine/result_check.h"
#include "coordinator/engine/step_meter.h"
#include "coordinator/engine/steps_in_flight.h"

namespace strata {

// A step that is not sent yet, and what is to be remembered of it.
struct OutgoingStep {
  StepMessage message;
  SentStep sent;
};

// One thread.
class StepSender {
 public:
  // All outlive this. It counts steps that are sent.
  StepSender(const EngineConfig& config, const Fence& fence, StepsInFlight* in_flight,
             StepMeter* meter, EngineHost* host, EngineCounters* counters);

  // The fence of the epoch that has just begun, of which no step is in flight.
  void SendFence();
  // Nodes that did not acknowledge the fence that is waited for; none while no fence is.
  std::vector<std::string> UnfencedNodes() const;

  // The epoch's next step, empty. It takes a number, so it has to be sent.
  OutgoingStep Begin();
  // At most as many steps as there are stages are in flight.
  void Send(OutgoingStep step, TimePoint now);

 private:
  const EngineConfig& config_;
  const Fence& fence_;
  StepsInFlight* const in_flight_;
  StepMeter* const meter_;
  EngineHost* const host_;
  EngineCounters* const counters_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_SENDER_H_
