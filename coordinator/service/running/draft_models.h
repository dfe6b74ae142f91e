// Draft models of loaded models: which deployment guesses for which, and the requests that it is
// sent for that. A guess is an answer of the draft model like any other, a few tokens long: what it
// read for the one before is among its cached prefixes.
#ifndef STRATA_COORDINATOR_SERVICE_RUNNING_DRAFT_MODELS_H_
#define STRATA_COORDINATOR_SERVICE_RUNNING_DRAFT_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/engine/draft_model.h"
#include "coordinator/service/loop/event_loop.h"

namespace strata {

// On the event loop.
class DraftModels {
 public:
  // Nothing is owned; all outlive this.
  DraftModels(const Clock* clock, EventLoop* loop, const Deployments* deployments)
      : clock_(clock), loop_(loop), deployments_(deployments) {}

  // EngineHost::AskDraftModel of `deployment`. From inside a call of its engine.
  bool Ask(uint64_t deployment, GuessRequest request);

 private:
  class Sink;

  // The engine that guesses for the deployment; null: none does now.
  Engine* GuesserOf(const Deployment& deployment) const;
  void Run(uint64_t deployment, GuessRequest request);
  // Engine::OnGuesses, later.
  void Answer(uint64_t deployment, const std::string& key, uint32_t known,
              std::vector<uint32_t> guesses);

  const Clock* const clock_;
  EventLoop* const loop_;
  const Deployments* const deployments_;
  uint64_t asked_ = 0;  // Names the requests.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_RUNNING_DRAFT_MODELS_H_
