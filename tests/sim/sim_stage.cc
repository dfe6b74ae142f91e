#include "tests/sim/sim_stage.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "common/status.h"
#include "tests/sim/exact_model.h"
#include "tests/sim/meddler.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_worker.h"
#include "tests/worker/runner/slice_cost.h"
#include "worker/runner/sequence_table.h"

namespace strata::sim {
namespace {

constexpr nanoseconds kStageDialPause = milliseconds(20);
constexpr nanoseconds kDialTry = milliseconds(200);

bool HasPoison(const v1::StepFrame& frame) {
  return std::any_of(frame.items().begin(), frame.items().end(), [](const v1::StepItem& item) {
    const auto& ids = item.token_ids();
    return !item.has_error() && std::find(ids.begin(), ids.end(), kPoisonToken) != ids.end();
  });
}

StageSpec SpecOf(const Scenario& scenario, const v1::Load& load) {
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

}  // namespace

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

void WorkerLife::AcknowledgeFence(uint64_t deployment, uint64_t epoch,
                                  const absl::Status& status) const {
  v1::WorkerMessage message;
  message.mutable_fence_ack()->set_deployment(deployment);
  message.mutable_fence_ack()->set_epoch(epoch);
  if (!status.ok()) {
    *message.mutable_fence_ack()->mutable_error() = DetailOf(status);
  }
  Say(std::move(message));
}

SimStage::SimStage(const WorkerLife& life, const v1::Load& load, ReachFn reach)
    : life_(life),
      load_(load),
      spec_(SpecOf(life.cluster->world->scenario, load)),
      next_(MachineOf(load.next_node())),
      reach_(std::move(reach)),
      shard_(spec_),
      runner_(ShardRunnerConfig{life.name, load.deployment(), load.epoch(), load.stage(),
                                load.stage_count(), spec_, load.weights_digest(),
                                load.numerics_class()},
              &shard_, &clock_),
      table_(runner_.sequences_for_test()) {}

void SimStage::After(nanoseconds delay, const std::function<void(SimStage*)>& what) {
  world().After(delay, [reach = reach_, what] { reach(what); });
}

// ---- Fences and the link onward.

void SimStage::Fence(uint64_t epoch) {
  wanted_epoch_ = std::max(wanted_epoch_, epoch);
  if (epoch > epoch_) {
    queue_.clear();
  }
  if (const absl::Status status = runner_.Fence(epoch); !status.ok()) {
    life_.AcknowledgeFence(load_.deployment(), epoch, status);
    return;
  }
  epoch_ = std::max(epoch_, epoch);
  if (onward_epoch_ == epoch) {
    life_.AcknowledgeFence(load_.deployment(), epoch, absl::OkStatus());
    return;
  }
  onward_epoch_ = 0;
  Dial(epoch, world().now() + world().scenario.step_timeout / 2);
}

// Opens the link to the next stage, again and again until it works or time is up.
void SimStage::Dial(uint64_t epoch, TimePoint deadline) {
  if (wanted_epoch_ != epoch || onward_epoch_ == epoch) {
    return;
  }
  if (world().now() >= deadline) {
    life_.AcknowledgeFence(load_.deployment(), epoch,
                           Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED",
                                 "the link to the next stage could not be opened")
                               .Node(life_.name));
    return;
  }
  const Machine next = next_;
  auto answer = [network = life_.cluster->network, machine = life_.machine, reach = reach_, next,
                 epoch, deadline](bool accepted) {
    network->SendControl(next, machine, [reach, epoch, deadline, accepted] {
      reach([epoch, deadline, accepted](SimStage* stage) {
        stage->OnDialed(epoch, accepted, deadline);
      });
    });
  };
  v1::LinkOpen open;
  open.set_from_node(life_.name);
  open.set_from_incarnation(life_.incarnation);
  open.set_to_node(load_.next_node());
  open.set_to_incarnation(load_.next_incarnation());
  open.set_deployment(load_.deployment());
  open.set_epoch(epoch);
  open.set_to_stage(load_.stage() + 1);
  life_.cluster->network->SendControl(life_.machine, next,
                                      [cluster = life_.cluster, next, open, answer] {
                                        if (next == kCoordinatorMachine) {
                                          cluster->coordinator->OnLinkOpen(open, answer);
                                        } else {
                                          cluster->worker(next)->OnLinkOpen(open, answer);
                                        }
                                      });
  After(kDialTry, [epoch, deadline](SimStage* stage) { stage->Dial(epoch, deadline); });
}

void SimStage::OnDialed(uint64_t epoch, bool accepted, TimePoint deadline) {
  if (wanted_epoch_ != epoch || onward_epoch_ == epoch) {
    return;
  }
  if (!accepted) {
    After(kStageDialPause, [epoch, deadline](SimStage* stage) { stage->Dial(epoch, deadline); });
    return;
  }
  onward_epoch_ = epoch;
  life_.AcknowledgeFence(load_.deployment(), epoch, absl::OkStatus());
}

void SimStage::Report(uint64_t epoch, const absl::Status& status) {
  if (epoch < wanted_epoch_ || faulted_ >= epoch) {
    return;  // One fault ends an epoch.
  }
  faulted_ = epoch;
  v1::WorkerMessage message;
  message.mutable_link_fault()->set_deployment(load_.deployment());
  message.mutable_link_fault()->set_epoch(epoch);
  message.mutable_link_fault()->set_stage(load_.stage());
  *message.mutable_link_fault()->mutable_error() = DetailOf(status);
  life_.Say(std::move(message));
}

// ---- Steps.

void SimStage::Take(const std::shared_ptr<const StepMessage>& frame) {
  queue_.push_back(frame);
  ComputeNext();
}

void SimStage::ComputeNext() {
  if (computing_ || queue_.empty()) {
    return;
  }
  const std::shared_ptr<const StepMessage> frame = queue_.front();
  queue_.pop_front();
  computing_ = true;
  After(TimeOf(frame->header), [frame](SimStage* stage) {
    stage->computing_ = false;
    stage->Compute(*frame);
    stage->ComputeNext();
  });
}

nanoseconds SimStage::TimeOf(const v1::StepFrame& frame) const {
  const uint32_t speed = 1 + static_cast<uint32_t>(life_.machine) % 3;
  if (!world().scenario.waves) {
    return std::chrono::microseconds((100 + 10 * frame.rows()) * speed);
  }
  const testing::SliceCost cost = testing::CostOf(frame, {spec_.first_layer, spec_.last_layer});
  return std::chrono::microseconds(100 +
                                   static_cast<int64_t>(3000 * cost.layers + 1500 * cost.rows));
}

void SimStage::Compute(const StepMessage& frame) {
  const RunnerStats before = runner_.stats();
  const uint64_t epoch = frame.header.epoch();
  if (epoch == epoch_ && HasPoison(frame.header) &&
      life_.cluster->worker(life_.machine)->MeetsPoison(this)) {
    return;
  }
  absl::StatusOr<ShardRunner::Output> output = runner_.Step(frame);
  if (runner_.stats().backend_failures > before.backend_failures) {
    world().Count(Rule::kBackend);
  }
  if (!output.ok()) {
    world().Tell(
        [&] { return life_.name + " breaks the link: " + std::string(output.status().message()); });
    if (ReasonOf(output.status()) == "STEP_GAP") {
      world().Count(Rule::kStepGap);
    }
    Report(epoch, output.status());
    return;
  }
  if (std::holds_alternative<ShardRunner::Discarded>(*output)) {
    world().Tell([&] { return life_.name + " discards " + Show(frame.header); });
    world().Count(epoch < epoch_ ? Rule::kOldEpoch : Rule::kSeenStep);
    return;
  }
  if (frame.header.resync() && runner_.stats().sequences < before.sequences) {
    world().Count(Rule::kReleasedAtResync);
  }
  if (world().scenario.waves) {
    const double ms = ToMs(TimeOf(frame.header));
    if (auto* step = std::get_if<StepMessage>(&*output)) {
      testing::SayComputeMs(ms, &step->header);
    } else {
      testing::SayComputeMs(ms, &std::get<ResultMessage>(*output).header);
    }
  }
  CountErrors(*output);
  SendOn(*std::move(output));
}

void SimStage::SendOn(ShardRunner::Output output) {
  const bool last = std::holds_alternative<ResultMessage>(output);
  const uint64_t epoch = last ? std::get<ResultMessage>(output).header.epoch()
                              : std::get<StepMessage>(output).header.epoch();
  if (onward_epoch_ != epoch) {
    Report(epoch, Error(absl::StatusCode::kFailedPrecondition, "LINK_NOT_OPEN",
                        "a step was computed while the link onward was not open")
                      .Node(life_.name));
    return;
  }
  Network::Frame sent;
  sent.link = last ? world().scenario.stages : load_.stage() + 1;
  sent.channel = ChannelOf(load_.deployment(), epoch);
  sent.from = life_.machine;
  sent.to = next_;
  const uint64_t to = load_.next_incarnation();
  if (last) {
    auto result = std::make_shared<const ResultMessage>(std::get<ResultMessage>(std::move(output)));
    world().Tell(
        [&] { return sent.what = Show(result->header), life_.name + " answers " + sent.what; });
    sent.arrives = [cluster = life_.cluster, to, result] {
      cluster->coordinator->OnResult(to, result);
    };
    sent.garbled = [cluster = life_.cluster, to, deployment = load_.deployment(), epoch] {
      cluster->coordinator->OnGarbledResult(to, deployment, epoch);
    };
  } else {
    auto frame = std::make_shared<const StepMessage>(std::get<StepMessage>(std::move(output)));
    SimWorker* next = life_.cluster->worker(next_);
    world().Tell([&] {
      sent.what = Show(frame->header);
      return life_.name + " sends " + sent.what + " on to " + next->name();
    });
    sent.arrives = [next, to, frame] { next->OnFrame(to, frame); };
    sent.garbled = [next, to, deployment = load_.deployment(), epoch] {
      next->OnGarbledFrame(to, deployment, epoch);
    };
  }
  life_.cluster->network->SendFrame(sent);
}

// ---- What the rules did, faults, and what is held.

void SimStage::CountErrors(const ShardRunner::Output& output) {
  const bool last = std::holds_alternative<ResultMessage>(output);
  auto count = [&](const auto& entries) {
    for (const auto& entry : entries) {
      if (entry.has_error() && entry.error_stage() == load_.stage()) {
        CountError(entry.error());
      }
    }
  };
  if (last) {
    count(std::get<ResultMessage>(output).header.items());
    count(std::get<ResultMessage>(output).header.commands());
  } else {
    count(std::get<StepMessage>(output).header.items());
    count(std::get<StepMessage>(output).header.commands());
  }
}

void SimStage::CountError(const v1::ErrorDetail& error) {
  static const std::map<std::string, Rule> kRules = {
      {"POSITION_MISMATCH", Rule::kPosition},  {"FINGERPRINT_MISMATCH", Rule::kFingerprint},
      {"STALE_GENERATION", Rule::kGeneration}, {"SEQUENCE_NOT_FOUND", Rule::kNotFound},
      {"SEQUENCE_TWICE", Rule::kTwice},        {"NON_FINITE", Rule::kNotFinite},
      {"BACKEND_FAILED", Rule::kBackendAlone}, {"SLICE_MISMATCH", Rule::kSlice}};
  world().Tell([&] { return life_.name + " refuses: " + error.message(); });
  if (const auto rule = kRules.find(error.reason()); rule != kRules.end()) {
    world().Count(rule->second);
  } else {
    // KV_PAGES above all: the ledger admitted what the stage has no room for.
    world().Fail(life_.name + " refused what no fault explains: " + error.reason() + ": " +
                 error.message());
  }
}

bool SimStage::FlipBit(uint64_t random) {
  std::vector<std::pair<std::string, uint64_t>> names;
  table_.ReleaseIf([&names](const Sequence& sequence) {
    names.emplace_back(sequence.request_id, sequence.generation);
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
  shard_.FailNextRead();
}

void SimStage::Poison(uint64_t random) {
  const auto layers = spec_.last_layer - spec_.first_layer + 1;
  world().Tell([&] {
    return "FAULT: " + life_.name + " computes NaN for token " + std::to_string(kPoisonToken);
  });
  shard_.PoisonToken(kPoisonToken, spec_.first_layer + static_cast<uint32_t>(random % layers));
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
