#include "tests/sim/sim_stage.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/sim/exact_model.h"
#include "tests/sim/meddler.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_worker.h"
#include "worker/runner/sequence_table.h"

namespace strata::sim {
namespace {

// Shorter than those of a worker, as step timeouts are here.
constexpr StageTimes kTimes = {.fence_on_its_way = milliseconds(100),
                               .dial_try = milliseconds(200),
                               .dial_pause = milliseconds(20)};

StagePlace PlaceOf(const WorkerLife& life, const v1::Load& load) {
  return {.node = life.name,
          .incarnation = life.incarnation,
          .deployment = load.deployment(),
          .pipeline = load.pipeline(),
          .stage = load.stage(),
          .max_in_flight = load.stage_count() + 1,
          .next_node = load.next_node(),
          .next_incarnation = load.next_incarnation(),
          .step_timeout = milliseconds(load.step_timeout_ms())};
}

}  // namespace

StageSpec StageSpecOf(const Scenario& scenario, const v1::Load& load) {
  StageSpec spec;
  spec.model = ExactModelSpec(scenario.layers);
  spec.first_layer = load.first_layer();
  spec.last_layer = load.last_layer();
  spec.embeds = load.first_layer() == 0;
  spec.heads = load.last_layer() + 1 == scenario.layers;
  spec.context = load.context();
  spec.kv_pages.assign(load.kv_pages().begin(), load.kv_pages().end());
  spec.max_batch_tokens = load.max_batch_tokens() + kMeddledRows;
  spec.max_batch_items = load.max_batch_items() + kMeddledItems;
  return spec;
}

void WorkerLife::TellCoordinator(std::function<void()> arrives) const {
  cluster->network->SendControl(machine, kCoordinatorMachine, std::move(arrives));
}

void WorkerLife::Say(v1::WorkerMessage message) const {
  TellCoordinator([cluster = cluster, machine = machine, incarnation = incarnation,
                   message = std::move(message)] {
    cluster->coordinator->OnMessage(machine, incarnation, message);
  });
}

void WorkerLife::EndStream() const {
  TellCoordinator([cluster = cluster, machine = machine, incarnation = incarnation] {
    cluster->coordinator->OnStreamEnded(machine, incarnation);
  });
}

SimStage::SimStage(const WorkerLife& life, const v1::Load& load, ReachFn reach)
    : life_(life),
      load_(load),
      spec_(StageSpecOf(life.cluster->world->scenario, load)),
      next_(MachineOf(load.next_node())),
      next_incarnation_(load.next_incarnation()),
      reach_(std::move(reach)),
      device_(life.cluster, life.machine, load, spec_),
      runner_(ShardRunnerConfig{life.name, load.deployment(), load.epoch(), load.stage(),
                                load.stage_count(), spec_, load.weights_digest(),
                                load.numerics_class()},
              device_.shard(), &clock_),
      table_(runner_.sequences_for_test()),
      epochs_(PlaceOf(life, load), kTimes),
      queue_(epochs_.max_waiting()) {
  if (device_.has_ranks()) {
    BeatAgain();
  }
}

void SimStage::After(nanoseconds delay, const std::function<void(SimStage*)>& what) {
  world().After(delay, [reach = reach_, what] { reach(what); });
}

// ---- Fences and links.

void SimStage::Fence(const v1::Fence& fence) {
  if (fence.ahead()) {
    const v1::KvSource* const kv_from = fence.has_kv_from() ? &fence.kv_from() : nullptr;
    if (!epochs_.TakesMore(fence.epoch(), kv_from)) {
      if (epochs_.ahead_inbound() != 0) {
        EndInbound(ahead_inbound_, absl::CancelledError("links of another epoch are opened ahead"));
      }
      ahead_next_ = fence.has_next() ? MachineOf(fence.next().node()) : next_;
    }
    epochs_.OpenAhead(fence.epoch(), fence.has_next() ? &fence.next() : nullptr, kv_from);
    EndCarrying(carries_, false);
    Drive();
    return;
  }
  if (fence.has_next()) {
    next_ = MachineOf(fence.next().node());
    next_incarnation_ = fence.next().incarnation();
    epochs_.SetNext(fence.next());
  }
  epochs_.Fence(fence.epoch());
  EndCarrying(carries_, false);
  Drive();
}

void SimStage::Drive() {
  while (true) {
    const FenceStep step = epochs_.Next(world().now());
    switch (step.act) {
      case FenceAct::kWait:
        if (step.until != TimePoint::max()) {
          After(step.until - world().now(), [](SimStage* stage) { stage->Drive(); });
        }
        JudgeWaiting();
        return;
      case FenceAct::kBegin:
        Begin(step);
        break;
      case FenceAct::kDial:
        Dial(step);
        break;
      case FenceAct::kCarry:
        Carry(step);
        break;
      case FenceAct::kAcknowledge: {
        v1::WorkerMessage message;
        *message.mutable_fence_ack() = step.ack;
        life_.Say(std::move(message));
        break;
      }
    }
  }
}

void SimStage::Begin(const FenceStep& step) {
  if (step.clears) {
    queue_.Clear();
    if (!step.adopts_inbound && ahead_inbound_.epoch() != 0) {
      EndInbound(ahead_inbound_, step.why);
      ahead_inbound_.Clear();
    }
  }
  if (step.ended != 0) {
    EndInbound(inbound_, step.why);
  }
  fencing_ = step.epoch;
  adopts_inbound_ = step.adopts_inbound;
  if (step.adopts_onward) {
    world().Count(Rule::kLinksAhead);
  }
  if (!queue_.at_hand()) {
    FenceRunner();
  }
}

void SimStage::FenceRunner() {
  const uint64_t epoch = *std::exchange(fencing_, std::nullopt);
  if (!device_.has_ranks()) {
    OnRunnerFenced(runner_.Fence(epoch));
    return;
  }
  const auto status = std::make_shared<absl::Status>();
  device_.Do(
      [this, epoch, status] {
        *status = device_.shard()->BeginEpoch(epoch);
        if (!status->ok()) {
          return;
        }
        if (device_.shard()->TakeKvLost()) {
          runner_.DropAllSequences();
        }
        *status = runner_.Fence(epoch);
      },
      [reach = reach_, status] {
        reach([status](SimStage* stage) {
          stage->OnRunnerFenced(*status);
          stage->Drive();
          stage->ComputeNext();
        });
      });
}

void SimStage::OnRunnerFenced(const absl::Status& status) {
  epochs_.OnBegun(status, world().now());
  if (std::exchange(adopts_inbound_, false)) {
    inbound_ = std::exchange(ahead_inbound_, v1::LinkOpen());
  }
}

void SimStage::BeatAgain() {
  After(kRankBeat, [](SimStage* stage) {
    stage->device_.Beat();
    stage->BeatAgain();
  });
}

void SimStage::Dial(const FenceStep& step) {
  const uint64_t dial = ++dials_;
  const Machine next_machine = step.ahead ? ahead_next_ : next_;
  auto answer = [network = life_.cluster->network, from = life_.machine, next = next_machine,
                 reach = reach_, dial](const absl::Status& status) {
    network->SendControl(next, from, [reach, dial, status] {
      reach([dial, status](SimStage* stage) { stage->OnDialed(dial, status); });
    });
  };
  life_.cluster->network->SendControl(
      life_.machine, next_machine,
      [cluster = life_.cluster, next = next_machine, open = step.open, answer] {
        if (next != kCoordinatorMachine) {
          cluster->worker(next)->Accept(open, answer);
          return;
        }
        cluster->coordinator->OnLinkOpen(open, [answer](bool accepted) {
          answer(accepted ? absl::OkStatus()
                          : Error(absl::StatusCode::kFailedPrecondition, "EPOCH_NOT_LOADED",
                                  "the coordinator does not take results of this epoch"));
        });
      });
  After(step.timeout, [dial](SimStage* stage) {
    stage->OnDialed(dial, Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED",
                                "the link to the next stage could not be opened")
                              .Node(stage->life_.name));
  });
}

void SimStage::OnDialed(uint64_t dial, const absl::Status& status) {
  if (dial != dials_) {
    return;
  }
  ++dials_;  // What comes later is not of a try that goes on.
  epochs_.OnDialed(status, world().now());
  Drive();
}

void SimStage::OnOnwardBroken(uint64_t epoch, const absl::Status& status) {
  if (epochs_.MaySend(epoch).ok() || epochs_.HasAhead(epoch)) {
    Tell(epochs_.Fault(epoch, 0, status));
  }
}

void SimStage::Accept(const v1::LinkOpen& open, std::function<void(const absl::Status&)> answer) {
  waiting_.push_back({open, world().now(), std::move(answer)});
  After(epochs_.AcceptsUntil(world().now()) - world().now(),
        [](SimStage* stage) { stage->JudgeWaiting(); });
  JudgeWaiting();
}

void SimStage::JudgeWaiting() {
  std::vector<WaitingLink> links;
  links.swap(waiting_);
  for (WaitingLink& link : links) {
    const LinkVerdict verdict = epochs_.Accept(link.open, link.since, world().now());
    if (verdict.waits) {
      waiting_.push_back(std::move(link));
      continue;
    }
    if (verdict.status.ok()) {
      // The sender of one that it replaces gave that up.
      (verdict.ahead ? ahead_inbound_ : inbound_) = link.open;
    }
    link.answer(verdict.status);
  }
}

void SimStage::BreakInbound(uint64_t epoch, const absl::Status& status) {
  if (epochs_.inbound() != 0 && epoch == epochs_.epoch()) {
    Tell(epochs_.OnInboundClosed(epochs_.inbound(), status));
    EndInbound(inbound_, status);
  }
}

// Its sender notices.
void SimStage::EndInbound(const v1::LinkOpen& inbound, const absl::Status& why) {
  if (inbound.from_node().empty()) {
    return;  // The coordinator is told by the stage.
  }
  SimWorker* sender = life_.cluster->worker(MachineOf(inbound.from_node()));
  life_.cluster->network->SendControl(
      life_.machine, MachineOf(inbound.from_node()),
      [sender, open = inbound, why] { sender->OnLinkBroken(open, why); });
}

void SimStage::Stop() {
  if (epochs_.Stop() != 0) {
    EndInbound(inbound_, epochs_.Unloaded());
  }
  if (ahead_inbound_.epoch() != 0) {
    EndInbound(ahead_inbound_, epochs_.Unloaded());
  }
  queue_.Stop();
  JudgeWaiting();
}

void SimStage::Tell(const std::optional<v1::LinkFault>& fault) const {
  if (fault.has_value()) {
    v1::WorkerMessage message;
    *message.mutable_link_fault() = *fault;
    life_.Say(std::move(message));
  }
}

// ---- Faults, and what is held.

bool SimStage::FlipBit(uint64_t random) {
  std::vector<std::pair<std::string, uint64_t>> names;
  table_.ReleaseIf([&names](const Sequence& sequence) {
    names.emplace_back(sequence.request_id, sequence.number);
    return false;
  });
  if (names.empty()) {
    return false;
  }
  const auto& [id, generation] = names[random % names.size()];
  Sequence* sequence = table_.Find(id, generation);
  const uint64_t bit = uint64_t{1} << (random >> 8) % 64;
  const size_t which = (random >> 16) % (sequence->page_fingerprints.size() + 1);
  if (which == 0) {
    sequence->fingerprint ^= bit;
  } else {
    sequence->page_fingerprints[which - 1] ^= bit;
  }
  world().Tell(
      [&, id = id] { return "FAULT: a bit of " + life_.name + "'s record of " + id + " flips"; });
  return true;
}

void SimStage::FailBackend() {
  world().Tell([&] { return "FAULT: the next step of " + life_.name + "'s device fails"; });
  device_.FailNextRead();
}

void SimStage::Poison(uint64_t random) {
  const auto layers = spec_.last_layer - spec_.first_layer + 1;
  world().Tell([&] {
    return "FAULT: " + life_.name + " computes NaN for token " + std::to_string(kPoisonToken);
  });
  device_.PoisonToken(kPoisonToken, spec_.first_layer + static_cast<uint32_t>(random % layers));
}

uint64_t SimStage::pages_in_use() const {
  const KvPool& pool = table_.pool();
  uint64_t pages = 0;
  for (uint32_t group = 0; group < pool.groups(); ++group) {
    pages += pool.total(group) - pool.free(group);
  }
  return pages;
}

}  // namespace strata::sim
