// Where a deployment stands on its way to the placement that it is to have, and what takes it on:
// one table for loading, resizing, waiting for a node that is lost, with requests or without, and
// moving to other nodes. A first load moves nothing and nobody waits; a resize moves KV and its
// requests wait; a node that comes back moves layers to where they were, and other nodes take them
// where they never were: requests wait or have ended. Where the old nodes are there, the new ones
// load beside them, and requests wait for links alone.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_PHASE_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_PHASE_H_

namespace strata {

enum class DeploymentState {
  kLoading,   // Workers fetch and pack.
  kReady,     // The engine runs.
  kResizing,  // As loading, while the engine is suspended: requests wait.
  kWaiting,   // A worker is gone; loads again once it is back. Requests that ran wait for a while.
  kFailed,    // Loading failed for another reason; `problem` says which.
};
const char* DeploymentStateName(DeploymentState state);

enum class DeploymentPhase {
  kWaiting,    // For nodes. Nobody else waits.
  kAwaiting,   // For nodes, and requests with it.
  kLoading,    // For workers that load, from nothing.
  kReloading,  // The same while requests wait.
  kResizing,   // For workers that make other KV, while the engine is suspended.
  kLinking,    // All have loaded: the engine has them fenced and linked.
  kRelinking,  // The same while requests wait.
  kReady,
  kPreparing,  // The same, while another placement is loaded beside the one that serves.
  kFailed,
};

enum class DeploymentEvent {
  kLoad,         // Loads of the whole placement are sent.
  kResize,       // Loads that change KV alone are sent, or those that change it back.
  kLoaded,       // Every worker is ready, for the loads that were sent last.
  kLinked,       // The stages are linked.
  kAwaitNode,    // A node is lost, and the engine's requests wait for it.
  kMove,         // Another placement is to be loaded, while an engine's requests wait.
  kPrepare,      // Loads of another placement are sent, beside the one that serves.
  kSwitch,       // That has loaded, and takes the place of the one that served.
  kAbandon,      // It is given up: the one that serves goes on.
  kRequestsEnd,  // The engine is stopped: nobody waits any more.
  kWait,         // Given up until nodes are there, or wanted again.
  kFail,         // Given up because of an error.
};
inline constexpr int kDeploymentPhases = 10;
inline constexpr int kDeploymentEvents = 12;

// The phase after `event`; `phase` itself where the event is of no account in it.
DeploymentPhase NextPhase(DeploymentPhase phase, DeploymentEvent event);

// What `model list` calls it.
DeploymentState StateOf(DeploymentPhase phase);
// Whether workers are to say how far they are with the loads of the placement that is to serve.
bool Loads(DeploymentPhase phase);
// Whether it runs, and nothing of it is being changed but where it may go next.
bool Runs(DeploymentPhase phase);
// Whether an engine holds requests for which a lost node is awaited.
bool HoldsRequests(DeploymentPhase phase);

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_PHASE_H_
