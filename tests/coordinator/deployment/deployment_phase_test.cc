#include "coordinator/deployment/deployment_phase.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace strata {
namespace {

using Event = DeploymentEvent;
using Phase = DeploymentPhase;

Phase After(Phase phase, std::initializer_list<Event> events) {
  for (const Event event : events) {
    phase = NextPhase(phase, event);
  }
  return phase;
}

TEST(DeploymentPhase, AFirstLoadIsLinkedOnceAllHaveLoaded) {
  EXPECT_EQ(After(Phase::kWaiting, {Event::kLoad}), Phase::kLoading);
  EXPECT_EQ(After(Phase::kLoading, {Event::kLoaded}), Phase::kLinking);
  EXPECT_EQ(After(Phase::kLinking, {Event::kLinked}), Phase::kReady);
}

TEST(DeploymentPhase, AResizeIsReadyOnceAllHaveLoadedAndSoIsOneThatIsUndone) {
  EXPECT_EQ(After(Phase::kReady, {Event::kResize}), Phase::kResizing);
  EXPECT_EQ(After(Phase::kResizing, {Event::kLoaded}), Phase::kReady);
  EXPECT_EQ(After(Phase::kReady, {Event::kResize, Event::kResize, Event::kLoaded}), Phase::kReady);
}

TEST(DeploymentPhase, RequestsWaitForALostNodeUntilItHasLoadedAgain) {
  const Phase awaiting = After(Phase::kReady, {Event::kAwaitNode});
  EXPECT_TRUE(HoldsRequests(awaiting));
  EXPECT_EQ(StateOf(awaiting), DeploymentState::kWaiting);
  const Phase reloading = NextPhase(awaiting, Event::kLoad);
  EXPECT_TRUE(HoldsRequests(reloading));
  EXPECT_EQ(StateOf(reloading), DeploymentState::kLoading);
  EXPECT_EQ(NextPhase(reloading, Event::kAwaitNode), awaiting);
  EXPECT_EQ(NextPhase(reloading, Event::kLoaded), Phase::kRelinking);
  EXPECT_EQ(After(reloading, {Event::kLoaded, Event::kLinked}), Phase::kReady);
}

TEST(DeploymentPhase, APlacementThatIsPreparedServesUntilTheOtherTakesItsPlace) {
  const Phase preparing = NextPhase(Phase::kReady, Event::kPrepare);
  EXPECT_EQ(StateOf(preparing), DeploymentState::kReady);
  EXPECT_TRUE(Runs(preparing));
  EXPECT_EQ(NextPhase(preparing, Event::kLinked), preparing) << "after a fault";
  EXPECT_EQ(NextPhase(preparing, Event::kAbandon), Phase::kReady);
  EXPECT_EQ(NextPhase(preparing, Event::kAwaitNode), Phase::kAwaiting);
  EXPECT_EQ(After(preparing, {Event::kSwitch, Event::kLinked}), Phase::kReady);
  for (int i = 0; i < kDeploymentPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    EXPECT_EQ(NextPhase(phase, Event::kPrepare) != phase, phase == Phase::kReady);
    EXPECT_EQ(NextPhase(phase, Event::kSwitch) != phase, phase == Phase::kPreparing);
    EXPECT_EQ(NextPhase(phase, Event::kAbandon) != phase, phase == Phase::kPreparing);
  }
}

TEST(DeploymentPhase, WhenTheRequestsEndTheNodeIsAwaitedWithoutThem) {
  EXPECT_EQ(NextPhase(Phase::kAwaiting, Event::kRequestsEnd), Phase::kWaiting);
  EXPECT_EQ(NextPhase(Phase::kReloading, Event::kRequestsEnd), Phase::kLoading);
}

TEST(DeploymentPhase, EveryPhaseCanBeGivenUpAndLoadedAnew) {
  for (int i = 0; i < kDeploymentPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    EXPECT_EQ(After(phase, {Event::kWait}), Phase::kWaiting);
    EXPECT_EQ(After(phase, {Event::kFail}), Phase::kFailed);
    EXPECT_EQ(StateOf(NextPhase(phase, Event::kLoad)), DeploymentState::kLoading);
    EXPECT_TRUE(Loads(NextPhase(phase, Event::kLoad)));
    EXPECT_EQ(After(phase, {Event::kFail, Event::kWait, Event::kLoad}), Phase::kLoading);
  }
}

TEST(DeploymentPhase, WhatFailedHearsOfNothingButANewBeginning) {
  for (const Event event : {Event::kResize, Event::kLoaded, Event::kLinked, Event::kAwaitNode,
                            Event::kRequestsEnd, Event::kFail}) {
    EXPECT_EQ(NextPhase(Phase::kFailed, event), Phase::kFailed);
  }
}

TEST(DeploymentPhase, OnlyLoadsUnderWayBecomeLoadedAndOnlyLoadedStagesLinked) {
  for (int i = 0; i < kDeploymentPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    EXPECT_EQ(NextPhase(phase, Event::kLoaded) != phase, Loads(phase));
    EXPECT_EQ(NextPhase(phase, Event::kLinked) != phase,
              phase == Phase::kLinking || phase == Phase::kRelinking);
  }
}

}  // namespace
}  // namespace strata
