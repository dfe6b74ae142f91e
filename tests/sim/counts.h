// What happened in a run, or in many: how often each fault was injected, and how often each rule of
// the design had to act. A fault that never struck, or a rule that was never needed, proves
// nothing.
#ifndef STRATA_TESTS_SIM_COUNTS_H_
#define STRATA_TESTS_SIM_COUNTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::sim {

enum class FaultKind {
  // One frame or result on one link.
  kDropFrame,
  kDelayFrame,
  kDuplicateFrame,
  kLateCopy,  // A second copy, seconds later.
  kReorderFrames,
  kCorruptFrame,
  // A link, a worker, the coordinator.
  kStallLink,
  kStallWorker,
  kPartitionWorker,
  kBreakControlStream,
  kCrashWorker,     // The process: its connections break at once.
  kPowerOffWorker,  // The machine: nobody is told.
  kCrashCoordinator,
  kPowerOffCoordinator,
  // The deployment.
  kUnloadAndLoad,
  kReplan,
  kResize,
  // A stage's state and device.
  kFlipBit,
  kFailBackend,
  kNonFinite,
  // What a faulty sender adds to a step.
  kForkWrongSource,
  kRepeatItem,
  kStaleItem,
  // A token that a machine fails at, whenever it meets it, in one of its lives or another: the
  // device at the whole step, the links, the process.
  kPoisonDevice,
  kPoisonLinks,
  kPoisonProcess,
  // Of loads: a worker says that it cannot load its stage; one is told to stop, and stops later.
  kFailLoad,
  kLeaveWorker,
  // What a worker sends reaches nobody, it hears nobody, two workers lose each other in one
  // direction, a worker computes slowly.
  kMuteWorker,
  kDeafenWorker,
  kCutOneWay,
  kSlowWorker,
  kMoveModel,  // The operator has it on other workers.
  // Of caches of weights: a bit flips on a disk, what is not in use makes room for others, a disk
  // is full for a while, a blob that a worker gives another is damaged on its way.
  kDamageCache,
  kEvictCache,
  kFillDisk,
  kSpoilBlob,
};
inline constexpr size_t kFaultKinds = static_cast<size_t>(FaultKind::kSpoilBlob) + 1;
// Those that may strike at any time; the others are for scenarios of their own.
inline constexpr size_t kDrawnFaultKinds = static_cast<size_t>(FaultKind::kStaleItem) + 1;
inline constexpr size_t kPoisonFaultKinds = 3;

enum class Rule {
  // Frames.
  kSeenStep,
  kStepGap,
  kOldEpoch,
  kBadChecksum,
  kOtherIncarnation,
  kNoDeployment,
  kNoLink,
  // Items and commands at a stage.
  kPosition,
  kFingerprint,
  kGeneration,
  kNotFound,
  kTwice,
  kSlice,
  kNotFinite,
  kBackend,
  kBackendAlone,
  kReleasedAtResync,
  kForkServed,
  // The engine.
  kResultDiscarded,
  kReplay,
  kRebuild,
  kFault,
  kOffender,
  kStepTimeout,
  kFenceTimeout,
  kPipelineDown,
  kPreempted,
  kDraftAccepted,
  kGuessed,
  kStepAhead,
  kStepVoid,
  kDraftRejected,
  kPrefixHit,
  kPrefixEvicted,
  kWaves,
  kReservationWaited,
  kCommitWaited,
  kResumed,
  kMoved,
  kMovedFromLeaving,
  kMovedToBetter,
  kSwitched,
  kLinksAhead,
  kKvCarried,
  kKvMerged,
  kKvRefused,
  kKvNotCarried,
  kMoveAbandoned,
  kFoundNoPlace,
  kResizeRefused,
  kResizeUndone,
  kLoadFailed,
  // Ranks.
  kRanksJoined,
  kRanksAnew,
  kRankNotJoined,
  kRanksBroken,
  // Weights.
  kCached,
  kCacheDamaged,
  kFromWorker,
  kSourceLeft,
  kBlobThrownAway,
  kDiskFull,
  kRoomMade,
  kNotPacked,
  kKept,
  kMovedNoWeights,
  // Membership.
  kLeaseLapsed,
  kHeartbeatLapsed,
  kNodeLost,
  kAwaited,
  kNodeLeft,
  kNameTaken,
  // Clients.
  kAnswered,
  kStopped,
  kHeld,
  kCancelled,
  kReplaced,
  kInFlight,
  kDeadline,
  kNeverFits,
  kContext,
  kQueueFull,
  kSentAgain,
};
inline constexpr size_t kRules = static_cast<size_t>(Rule::kSentAgain) + 1;

// As the tables have them.
std::string_view NameOf(FaultKind kind);
std::string_view NameOf(Rule rule);

struct Counts {
  std::array<uint64_t, kFaultKinds> faults{};
  std::array<uint64_t, kRules> rules{};

  void Add(const Counts& other);
  // Both tables, for people.
  std::string Table() const;
  // The names of what is 0, separated by commas; "" if nothing is.
  std::string Missing() const;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_COUNTS_H_
