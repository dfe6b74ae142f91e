#include "tests/sim/simulation.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "common/app/log.h"
#include "common/check.h"
#include "common/plan.h"
#include "tests/sim/cluster.h"
#include "tests/sim/deployment_watch.h"
#include "tests/sim/exact_model.h"
#include "tests/sim/sim_clients.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_model.h"
#include "tests/sim/sim_worker.h"
#include "tests/sim/standby_check.h"

namespace strata::sim {
namespace {

// In simulated time. Everything ends long before these, or never.
constexpr nanoseconds kPatience = std::chrono::seconds(60);
// The latest that a copy of a frame comes.
constexpr nanoseconds kLateFrames = std::chrono::seconds(7);
// Until a client notices a coordinator whose machine is gone.
constexpr nanoseconds kKeepalive = std::chrono::seconds(2);
constexpr nanoseconds kProbePause = milliseconds(400);

class Simulation {
 public:
  Simulation(const Scenario& scenario, bool tell)
      : world_(&scenario, tell),
        network_(&world_, scenario.stages + 1),
        cluster_{&world_, &network_, std::make_unique<RankFibers>(&world_), {}, nullptr},
        coordinator_(&cluster_),
        clients_(&cluster_, ExactModelSpec(scenario.layers)) {
    cluster_.coordinator = &coordinator_;
    for (uint32_t i = 0; i < scenario.workers; ++i) {
      cluster_.workers.push_back(std::make_unique<SimWorker>(&cluster_, static_cast<Machine>(i)));
    }
  }

  // What waits within calls ends.
  ~Simulation() {
    for (const auto& worker : cluster_.workers) {
      worker->Stop(/*silent=*/true);
    }
  }

  Outcome Run() {
    Start();
    WaitFor([this] { return Quiet(); },
            [this] { return "hangs: " + clients_.NamesOfWaiting() + " never ended"; });
    Probe();
    // What still travels must change nothing.
    RunUntil(world_.now() + kLateFrames, [] { return false; });
    WaitFor(
        [this] {
          const Deployment* deployment = coordinator_.deployment();
          return deployment != nullptr && IsIdle(*deployment, world_.now());
        },
        [] { return std::string("the ledger never got all pages back"); });
    CheckEmpty();
    CheckStandby();
    return {world_.finding(), world_.counts, world_.events.ran(), world_.story()};
  }

 private:
  void Start() {
    coordinator_.Start();
    for (const auto& worker : cluster_.workers) {
      worker->Start();
    }
    coordinator_.LoadModel(DrawPlan(world_.scenario, &world_.random));
    // Time is counted from when the model is ready.
    WaitFor([this] { return coordinator_.deployment()->serves(); },
            [] { return std::string("the model was never loaded"); });
    const TimePoint start = world_.now();
    for (ClientRequest request : world_.scenario.requests) {
      request.at += start;
      script_end_ = std::max(script_end_, request.at);
      clients_.Add(request);
    }
    for (const Fault& fault : world_.scenario.faults) {
      script_end_ = std::max(script_end_, start + fault.at + fault.lasts);
      world_.events.At(start + fault.at, [this, fault] { Strike(fault); });
    }
  }

  bool Quiet() const { return world_.now() >= script_end_ && clients_.waiting() == 0; }

  // Runs until `done`, or the end of time for it: then that is the finding.
  template <typename Done, typename What>
  void WaitFor(const Done& done, const What& what) {
    const TimePoint end = std::max(world_.now(), script_end_) + kPatience;
    if (!RunUntil(end, done) && !world_.failed()) {
      world_.Fail(what());
    }
  }

  template <typename Done>
  bool RunUntil(TimePoint end, const Done& done) {
    while (!world_.failed()) {
      if (done()) {
        return true;
      }
      if (!world_.events.RunNext(end)) {
        return false;
      }
    }
    return false;
  }

  // After all faults the cluster must serve again, whatever they were.
  void Probe() {
    ClientRequest request;
    request.id = "probe";
    request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    request.max_tokens = 5;
    request.params = GreedyParams();
    request.retries = static_cast<uint32_t>(kPatience / kProbePause);
    while (!world_.failed()) {
      request.at = world_.now();
      clients_.Add(request);
      const TimePoint began = world_.now();
      WaitFor([this] { return clients_.waiting() == 0; },
              [] { return std::string("the cluster does not serve again after its faults"); });
      if (clients_.NewestAnswered()) {
        return;
      }
      // A fault may have left something that fails one request and heals with it.
      if (++probes_ == 5) {
        world_.Fail("five requests in a row were not served after all faults were over");
      }
      RunUntil(began + kProbePause, [] { return false; });
    }
  }

  // What the prefix cache of the deployment keeps was compared when it became idle.
  void CheckEmpty() {
    const Deployment* deployment = coordinator_.deployment();
    for (const auto& worker : cluster_.workers) {
      uint64_t sequences = worker->sequences(0);
      uint64_t pages = worker->pages_in_use(0);
      if (deployment != nullptr && IsIdle(*deployment, world_.now())) {
        sequences -= worker->sequences(deployment->id());
        pages -= worker->pages_in_use(deployment->id());
      }
      if (sequences > 0 || pages > 0) {
        world_.Fail(worker->name() + " still holds " + std::to_string(sequences) +
                    " sequences and " + std::to_string(pages) + " KV pages when all is over");
      }
      CheckRanks(*worker, deployment);
    }
  }

  // Nothing of ranks is anywhere that the plan does not name.
  void CheckRanks(const SimWorker& worker, const Deployment* deployment) {
    for (const v1::Load* load : worker.Ranks()) {
      const bool loaded = deployment != nullptr && deployment->id() == load->deployment();
      const auto& stages = loaded ? OnlyPipeline(deployment->plan()).stages()
                                  : v1::PlanPipeline::default_instance().stages();
      const auto stage = static_cast<int>(load->stage());
      const auto rank = static_cast<int>(load->ranks().rank());
      if (stage >= stages.size() || rank >= stages[stage].ranks_size() ||
          stages[stage].ranks(rank).node() != worker.name()) {
        world_.Fail(worker.name() + " still holds rank " + std::to_string(rank) + " of stage " +
                    std::to_string(stage) + " when all is over");
      }
    }
  }

  // A worker is lost for good, and its layers are kept elsewhere.
  void CheckStandby() {
    if (world_.scenario.standby == 0 || world_.failed()) {
      return;
    }
    coordinator_.Calm();
    WaitFor([this] { return KeptIsThere(cluster_); },
            [] { return std::string("layers that are kept for losses are not there"); });
    SimWorker* lost = world_.failed() ? nullptr : Expendable(cluster_);
    if (lost == nullptr) {
      return;
    }
    world_.Tell([&] { return lost->name() + " is lost for good"; });
    const uint64_t fetched = BlobsFetched(cluster_);
    lost->Stop(/*silent=*/true);
    WaitFor([&] { return ServesWithout(cluster_, *lost); },
            [] { return std::string("a lost node's layers went nowhere"); });
    if (BlobsFetched(cluster_) != fetched) {
      world_.Fail("the loss of " + lost->name() + " moved weights that were kept elsewhere");
    }
    world_.Count(Rule::kMovedNoWeights);
    Probe();
  }

  SimWorker* Target(const Fault& fault) {
    return cluster_.workers[fault.target % cluster_.workers.size()].get();
  }

  void Strike(const Fault& fault);
  // Once there is a sequence to damage.
  void FlipBit(const Fault& fault);
  void StrikeCache(const Fault& fault);
  void StrikeProcess(const Fault& fault);
  void CutOneWay(SimWorker* worker, Machine machine, const Fault& fault);
  void StopWorker(SimWorker* worker, const Fault& fault);
  // It is told to stop, and stops when the fault has lasted.
  void Leave(SimWorker* worker, Machine machine, const Fault& fault);
  void StopCoordinator(const Fault& fault);
  void LoadAnew(const Fault& fault);
  void LoadWhenUp(const v1::Plan& plan, nanoseconds after);
  void Count(const Fault& fault, bool struck) {
    if (struck) {
      world_.Count(fault.kind);
    }
  }

  World world_;
  Network network_;
  Cluster cluster_;
  SimCoordinator coordinator_;
  SimClients clients_;
  TimePoint script_end_{0};
  int probes_ = 0;
};

void Simulation::Strike(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kDropFrame:
    case FaultKind::kDelayFrame:
    case FaultKind::kDuplicateFrame:
    case FaultKind::kLateCopy:
    case FaultKind::kReorderFrames:
    case FaultKind::kCorruptFrame:
      network_.Arm(fault);
      return;
    case FaultKind::kForkWrongSource:
    case FaultKind::kRepeatItem:
    case FaultKind::kStaleItem:
    case FaultKind::kFailLoad:
      coordinator_.Arm(fault);
      return;
    case FaultKind::kMoveModel:
      Count(fault, coordinator_.MoveModel(fault.random));
      return;
    case FaultKind::kFlipBit:
      FlipBit(fault);
      return;
    case FaultKind::kFailBackend:
      Count(fault, Target(fault)->FailBackend());
      return;
    case FaultKind::kNonFinite:
      Count(fault, Target(fault)->PoisonStage(fault.random));
      return;
    case FaultKind::kPoisonDevice:
    case FaultKind::kPoisonLinks:
    case FaultKind::kPoisonProcess:
      Count(fault, Target(fault)->Poison(fault.kind));
      return;
    case FaultKind::kDamageCache:
    case FaultKind::kEvictCache:
    case FaultKind::kFillDisk:
    case FaultKind::kSpoilBlob:
      StrikeCache(fault);
      return;
    default:
      StrikeProcess(fault);
  }
}

void Simulation::StrikeCache(const Fault& fault) {
  SimWorker* worker = Target(fault);
  world_.Tell([&] { return "FAULT: " + worker->name() + ": " + std::string(NameOf(fault.kind)); });
  if (fault.kind == FaultKind::kDamageCache) {
    Count(fault, worker->cache().Damage(fault.random));
  } else if (fault.kind == FaultKind::kEvictCache) {
    Count(fault, worker->cache().Evict(worker->InUse()) > 0);
  } else if (fault.kind == FaultKind::kFillDisk) {
    Count(fault, true);
    worker->cache().Fill(world_.now() + fault.lasts);
  } else {
    worker->cache().SpoilNext();  // Counted when it strikes.
  }
}

void Simulation::FlipBit(const Fault& fault) {
  if (Target(fault)->FlipBit(fault.random)) {
    Count(fault, true);
    if (fault.random % 2 == 0) {  // A fence finds it, not the next item.
      Fault drop = fault;
      drop.kind = FaultKind::kDropFrame;
      network_.Arm(drop);
    }
  } else if (world_.now() < script_end_) {
    world_.After(milliseconds(1), [this, fault] { FlipBit(fault); });
  }
}

void Simulation::StrikeProcess(const Fault& fault) {
  const TimePoint until = world_.now() + fault.lasts;
  SimWorker* worker = Target(fault);
  const auto machine = static_cast<Machine>(fault.target % cluster_.workers.size());
  switch (fault.kind) {
    case FaultKind::kStallLink:
      world_.Tell([] { return std::string("FAULT: a link stalls"); });
      Count(fault, true);
      network_.StallLink(fault.target, until);
      return;
    case FaultKind::kStallWorker:
      world_.Tell([&] { return "FAULT: " + worker->name() + " is stopped for a while"; });
      Count(fault, worker->up());
      worker->Stall(until);
      return;
    case FaultKind::kPartitionWorker:
      world_.Tell([&] { return "FAULT: " + worker->name() + " is cut off the network"; });
      Count(fault, worker->up());
      network_.Partition(machine, until);
      return;
    case FaultKind::kMuteWorker:
    case FaultKind::kDeafenWorker:
    case FaultKind::kCutOneWay:
      CutOneWay(worker, machine, fault);
      return;
    case FaultKind::kSlowWorker: {
      const bool for_good = fault.lasts == nanoseconds(0);
      const auto times = static_cast<uint32_t>(for_good ? fault.random : 2 + fault.random % 100);
      world_.Tell([&] {
        return "FAULT: " + worker->name() + " computes " + std::to_string(times) + " times slower" +
               (for_good ? "" : " for a while");
      });
      Count(fault, worker->up());
      worker->SlowDown(times, for_good ? TimePoint::max() : until);
      return;
    }
    case FaultKind::kBreakControlStream:
      world_.Tell([&] { return "FAULT: the control stream of " + worker->name() + " breaks"; });
      Count(fault, worker->up());
      worker->BreakControlStream();
      return;
    case FaultKind::kCrashWorker:
    case FaultKind::kPowerOffWorker:
      StopWorker(worker, fault);
      return;
    case FaultKind::kLeaveWorker:
      Leave(worker, machine, fault);
      return;
    case FaultKind::kCrashCoordinator:
    case FaultKind::kPowerOffCoordinator:
      StopCoordinator(fault);
      return;
    default:
      LoadAnew(fault);
  }
}

void Simulation::CutOneWay(SimWorker* worker, Machine machine, const Fault& fault) {
  const TimePoint until = world_.now() + fault.lasts;
  Count(fault, worker->up());
  if (fault.kind == FaultKind::kMuteWorker) {
    world_.Tell([&] { return "FAULT: nobody hears " + worker->name(); });
    network_.Mute(machine, until);
  } else if (fault.kind == FaultKind::kDeafenWorker) {
    world_.Tell([&] { return "FAULT: " + worker->name() + " hears nobody"; });
    network_.Deafen(machine, until);
  } else {
    const auto other = static_cast<Machine>(fault.random % cluster_.workers.size());
    world_.Tell([&] {
      return "FAULT: " + worker->name() + " is not heard by worker " + std::to_string(other);
    });
    network_.Cut(machine, other, until);
  }
}

void Simulation::StopWorker(SimWorker* worker, const Fault& fault) {
  if (!worker->up()) {
    return;
  }
  Count(fault, true);
  world_.Tell([&] { return "FAULT: " + worker->name() + ": " + std::string(NameOf(fault.kind)); });
  worker->Stop(fault.kind == FaultKind::kPowerOffWorker);
  world_.After(fault.lasts, [this, worker] {
    world_.Tell([&] { return worker->name() + " starts again"; });
    worker->Start();
  });
}

void Simulation::Leave(SimWorker* worker, Machine machine, const Fault& fault) {
  if (!worker->up()) {
    return;
  }
  Count(fault, true);
  world_.Tell([&] { return "FAULT: " + worker->name() + " is told to stop"; });
  const uint64_t incarnation = worker->incarnation();
  coordinator_.SetLeaving(machine, incarnation);
  world_.After(fault.lasts, [this, worker, incarnation, fault] {
    if (worker->incarnation() == incarnation && worker->up()) {
      worker->Stop(/*silent=*/false);
      world_.After(milliseconds(50), [worker] {
        if (!worker->up()) {
          worker->Start();
        }
      });
    }
  });
}

void Simulation::StopCoordinator(const Fault& fault) {
  if (!coordinator_.up()) {
    return;
  }
  Count(fault, true);
  const bool silent = fault.kind == FaultKind::kPowerOffCoordinator;
  world_.Tell([&] { return "FAULT: " + std::string(NameOf(fault.kind)); });
  coordinator_.Stop(silent);
  clients_.OnCoordinatorLost(coordinator_.life(), silent ? kKeepalive : world_.scenario.latency);
  world_.After(fault.lasts, [this] { coordinator_.Start(); });
}

// Takes the model off its workers, and loads it anew under another plan: at once, or later.
void Simulation::LoadAnew(const Fault& fault) {
  if (!coordinator_.up()) {
    return;
  }
  Random random(fault.random);
  if (fault.kind == FaultKind::kResize) {
    const uint64_t pages = random.OneIn(2) ? random.Between(2, 3) : random.Between(5, 30);
    world_.Tell(
        [&] { return "FAULT: the operator resizes KV to " + std::to_string(pages) + " pages"; });
    Count(fault, coordinator_.ResizeModel(pages));
    return;
  }
  Count(fault, true);
  const v1::Plan plan = DrawPlan(world_.scenario, &random);
  if (fault.kind == FaultKind::kReplan) {
    world_.Tell(
        [] { return std::string("FAULT: the operator loads the model under another plan"); });
    coordinator_.LoadModel(plan);
    return;
  }
  world_.Tell([] { return std::string("FAULT: the operator unloads the model for a while"); });
  coordinator_.UnloadModel();
  LoadWhenUp(plan, fault.lasts);
}

void Simulation::LoadWhenUp(const v1::Plan& plan, nanoseconds after) {
  world_.After(after, [this, plan] {
    if (!coordinator_.up()) {
      LoadWhenUp(plan, kProbePause);
    } else {
      coordinator_.LoadModel(plan);
    }
  });
}

}  // namespace

Outcome Simulate(const Scenario& scenario, bool tell) {
  // What is worth knowing is in the story.
  static const bool silent = SetUpLogging("off", "text").ok();
  STRATA_CHECK(silent);
  return Simulation(scenario, tell).Run();
}

}  // namespace strata::sim
