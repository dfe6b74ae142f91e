#include "coordinator/deployment/deployment_phase.h"

namespace strata {
namespace {

using enum DeploymentPhase;

// By phase, then by event, in the order of their declarations.
constexpr DeploymentPhase kNext[kDeploymentPhases][kDeploymentEvents] = {
    // clang-format off
    //               kLoad        kResize      kLoaded      kLinked      kAwaitNode   kMove        kPrepare     kSwitch      kAbandon     kRequestsEnd kWait        kFail
    /* kWaiting */   {kLoading,    kWaiting,    kWaiting,    kWaiting,    kWaiting,    kWaiting,    kWaiting,    kWaiting,    kWaiting,    kWaiting,    kWaiting,    kFailed},
    /* kAwaiting */  {kReloading,  kAwaiting,   kAwaiting,   kAwaiting,   kAwaiting,   kReloading,  kAwaiting,   kAwaiting,   kAwaiting,   kWaiting,    kWaiting,    kFailed},
    /* kLoading */   {kLoading,    kLoading,    kLinking,    kLoading,    kAwaiting,   kLoading,    kLoading,    kLoading,    kLoading,    kLoading,    kWaiting,    kFailed},
    /* kReloading */ {kReloading,  kReloading,  kRelinking,  kReloading,  kAwaiting,   kReloading,  kReloading,  kReloading,  kReloading,  kLoading,    kWaiting,    kFailed},
    /* kResizing */  {kLoading,    kResizing,   kReady,      kResizing,   kAwaiting,   kResizing,   kResizing,   kResizing,   kResizing,   kResizing,   kWaiting,    kFailed},
    /* kLinking */   {kLoading,    kLinking,    kLinking,    kReady,      kAwaiting,   kReloading,  kLinking,    kLinking,    kLinking,    kLinking,    kWaiting,    kFailed},
    /* kRelinking */ {kReloading,  kRelinking,  kRelinking,  kReady,      kAwaiting,   kReloading,  kRelinking,  kRelinking,  kRelinking,  kLinking,    kWaiting,    kFailed},
    /* kReady */     {kLoading,    kResizing,   kReady,      kReady,      kAwaiting,   kReloading,  kPreparing,  kReady,      kReady,      kReady,      kWaiting,    kFailed},
    /* kPreparing */ {kLoading,    kPreparing,  kPreparing,  kPreparing,  kAwaiting,   kPreparing,  kPreparing,  kRelinking,  kReady,      kPreparing,  kWaiting,    kFailed},
    /* kFailed */    {kLoading,    kFailed,     kFailed,     kFailed,     kFailed,     kFailed,     kFailed,     kFailed,     kFailed,     kFailed,     kWaiting,    kFailed},
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
    case kRelinking:
      return DeploymentState::kLoading;
    case kResizing:
      return DeploymentState::kResizing;
    case kReady:
    case kPreparing:
      return DeploymentState::kReady;
    case kFailed:
      break;
  }
  return DeploymentState::kFailed;
}

bool Loads(DeploymentPhase phase) {
  return phase == kLoading || phase == kReloading || phase == kResizing;
}

bool Runs(DeploymentPhase phase) { return phase == kReady || phase == kPreparing; }

bool HoldsRequests(DeploymentPhase phase) { return phase == kAwaiting || phase == kReloading; }

}  // namespace strata
