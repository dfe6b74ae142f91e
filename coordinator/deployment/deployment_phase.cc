#include "coordinator/deployment/deployment_phase.h"

namespace strata {
namespace {

using enum DeploymentPhase;

// By phase, then by event, in the order of their declarations.
constexpr DeploymentPhase kNext[kDeploymentPhases][kDeploymentEvents] = {
    // clang-format off
    //              kLoad       kResize     kLoaded     kLinked     kAwaitNode  kMove       kRequestsEnd kWait     kFail
    /* kWaiting */   {kLoading,   kWaiting,   kWaiting,   kWaiting,   kWaiting,   kWaiting,   kWaiting,    kWaiting, kFailed},
    /* kAwaiting */  {kReloading, kAwaiting,  kAwaiting,  kAwaiting,  kAwaiting,  kReloading, kWaiting,    kWaiting, kFailed},
    /* kLoading */   {kLoading,   kLoading,   kLinking,   kLoading,   kAwaiting,  kLoading,   kLoading,    kWaiting, kFailed},
    /* kReloading */ {kReloading, kReloading, kLinking,   kReloading, kAwaiting,  kReloading, kLoading,    kWaiting, kFailed},
    /* kResizing */  {kLoading,   kResizing,  kReady,     kResizing,  kAwaiting,  kResizing,  kResizing,   kWaiting, kFailed},
    /* kLinking */   {kLoading,   kLinking,   kLinking,   kReady,     kAwaiting,  kReloading, kLinking,    kWaiting, kFailed},
    /* kReady */     {kLoading,   kResizing,  kReady,     kReady,     kAwaiting,  kReloading, kReady,      kWaiting, kFailed},
    /* kFailed */    {kLoading,   kFailed,    kFailed,    kFailed,    kFailed,    kFailed,    kFailed,     kWaiting, kFailed},
    // clang-format on
};

}  // namespace

const char* DeploymentStateName(DeploymentState state) {
  switch (state) {
    case DeploymentState::kLoading:
      return "loading";
    case DeploymentState::kReady:
      return "ready";
    case DeploymentState::kResizing:
      return "resizing";
    case DeploymentState::kWaiting:
      return "waiting";
    case DeploymentState::kFailed:
      return "failed";
  }
  return "?";
}

DeploymentPhase NextPhase(DeploymentPhase phase, DeploymentEvent event) {
  return kNext[static_cast<int>(phase)][static_cast<int>(event)];
}

DeploymentState StateOf(DeploymentPhase phase) {
  switch (phase) {
    case kWaiting:
    case kAwaiting:
      return DeploymentState::kWaiting;
    case kLoading:
    case kReloading:
    case kLinking:
      return DeploymentState::kLoading;
    case kResizing:
      return DeploymentState::kResizing;
    case kReady:
      return DeploymentState::kReady;
    case kFailed:
      break;
  }
  return DeploymentState::kFailed;
}

bool Loads(DeploymentPhase phase) {
  return phase == kLoading || phase == kReloading || phase == kResizing;
}

bool HoldsRequests(DeploymentPhase phase) { return phase == kAwaiting || phase == kReloading; }

}  // namespace strata
