// The steps of a simulated stage: computed one after another, and sent on.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "common/status.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_stage.h"
#include "tests/sim/sim_worker.h"
#include "tests/worker/runner/slice_cost.h"

namespace strata::sim {
namespace {

bool HasPoison(const v1::StepFrame& frame) {
  return std::any_of(frame.items().begin(), frame.items().end(), [](const v1::StepItem& item) {
    const auto& ids = item.token_ids();
    return !item.has_error() && std::find(ids.begin(), ids.end(), kPoisonToken) != ids.end();
  });
}

}  // namespace

void SimStage::Take(std::shared_ptr<const StepMessage> frame) {
  if (!epochs_.MayTake(epochs_.inbound()).ok()) {
    world().Count(Rule::kNoLink);
    return;
  }
  if (queue_.Add(&frame, /*may_begin=*/false) == Queue::Added::kRefused) {
    BreakInbound(epochs_.epoch(), epochs_.TooManySteps());
    return;
  }
  ComputeNext();
}

void SimStage::ComputeNext() {
  if (device_.busy()) {
    return;  // A fence is at work.
  }
  const std::optional<std::shared_ptr<const StepMessage>> next = queue_.Next();
  if (!next.has_value()) {
    return;
  }
  After(TimeOf((*next)->header), [frame = *next](SimStage* stage) { stage->Compute(frame); });
}

void SimStage::EndStep() {
  queue_.Done();
  if (fencing_.has_value()) {
    FenceRunner();
    Drive();
  }
  ComputeNext();
}

nanoseconds SimStage::TimeOf(const v1::StepFrame& frame) const {
  if (!world().scenario.waves) {
    const uint32_t times = life_.cluster->worker(life_.machine)->TimesSlower();
    return times * StepTime(frame.rows(), static_cast<uint32_t>(life_.machine));
  }
  const testing::SliceCost cost = testing::CostOf(frame, {spec_.first_layer, spec_.last_layer});
  return std::chrono::microseconds(100 +
                                   static_cast<int64_t>(3000 * cost.layers + 1500 * cost.rows));
}

void SimStage::Compute(const std::shared_ptr<const StepMessage>& frame) {
  const RunnerStats before = runner_.stats();
  const uint64_t epoch = frame->header.epoch();
  if (epoch == epochs_.epoch() && HasPoison(frame->header) &&
      life_.cluster->worker(life_.machine)->MeetsPoison(this)) {
    EndStep();
    return;
  }
  if (!device_.has_ranks()) {
    OnComputed(*frame, before, runner_.Step(*frame));
    EndStep();
    return;
  }
  const auto output = std::make_shared<absl::StatusOr<ShardRunner::Output>>();
  device_.Do([this, frame, output] { *output = runner_.Step(*frame); },
             [reach = reach_, frame, before, output] {
               reach([frame, before, output](SimStage* stage) {
                 stage->OnComputed(*frame, before, std::move(*output));
                 stage->EndStep();
               });
             });
}

void SimStage::OnStepFailed(const StepMessage& frame, const absl::Status& why) {
  world().Tell([&] { return life_.name + " breaks the link: " + std::string(why.message()); });
  if (ReasonOf(why) == "STEP_GAP") {
    world().Count(Rule::kStepGap);
  } else if (ReasonOf(why) == kRanksBroken) {
    world().Count(Rule::kRanksBroken);
    const auto& faults = world().counts.faults;
    // Moves take ranks off one after another.
    if (!world().scenario.moves &&
        std::all_of(faults.begin(), faults.end(), [](uint64_t count) { return count == 0; })) {
      world().Fail(life_.name +
                   " lost a rank, and no fault explains it: " + std::string(why.message()));
    }
  }
  Tell(epochs_.OnStepFailed(frame.header.epoch(), frame.header.step(), why));
  BreakInbound(epochs_.epoch(), why);
}

void SimStage::OnComputed(const StepMessage& frame, const RunnerStats& before,
                          absl::StatusOr<ShardRunner::Output> output) {
  const uint64_t epoch = frame.header.epoch();
  if (runner_.stats().backend_failures > before.backend_failures) {
    world().Count(Rule::kBackend);
  }
  if (!output.ok()) {
    OnStepFailed(frame, output.status());
    return;
  }
  if (std::holds_alternative<ShardRunner::Discarded>(*output)) {
    world().Tell([&] { return life_.name + " discards " + Show(frame.header); });
    world().Count(epoch < epochs_.epoch() ? Rule::kOldEpoch : Rule::kSeenStep);
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
  if (const absl::Status may = epochs_.MaySend(epoch); !may.ok()) {
    const uint64_t step = last ? std::get<ResultMessage>(output).header.step()
                               : std::get<StepMessage>(output).header.step();
    Tell(epochs_.Fault(epoch, step, may));
    return;
  }
  Network::Frame sent;
  sent.link = last ? world().scenario.stages : load_.stage() + 1;
  sent.channel = ChannelOf(load_.deployment(), epoch);
  sent.from = life_.machine;
  sent.to = next_;
  const uint64_t to = next_incarnation_;
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

// ---- What the rules did.

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

}  // namespace strata::sim
