#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "common/status.h"
#include "tests/sim/sim_coordinator.h"
#include "worker/runner/sequence_table.h"
#include "worker/service/lease_policy.h"

namespace strata::sim {
namespace {

constexpr nanoseconds kRegisterBackoff = milliseconds(100);
constexpr nanoseconds kRegisterTimeout = milliseconds(1000);
constexpr nanoseconds kDialPause = milliseconds(20);
constexpr nanoseconds kDialTry = milliseconds(200);

}  // namespace

SimWorker::SimWorker(Cluster* cluster, Machine machine)
    : cluster_(cluster), machine_(machine), name_("worker-" + std::to_string(machine)) {}

void SimWorker::Reach(uint64_t incarnation, const std::function<void()>& what) {
  if (!up_ || incarnation != incarnation_) {
    return;
  }
  if (world().now() < stalled_until_) {
    world().events.At(stalled_until_, [this, incarnation, what] { Reach(incarnation, what); });
    return;
  }
  what();
}

void SimWorker::After(nanoseconds delay, const std::function<void()>& what) {
  world().After(delay, [this, incarnation = incarnation_, what] { Reach(incarnation, what); });
}

void SimWorker::Say(std::function<void()> arrives) {
  cluster_->network->SendControl(machine_, kCoordinatorMachine, std::move(arrives));
}

SimWorker::Stage* SimWorker::Find(uint64_t deployment) {
  const auto it = stages_.find(deployment);
  return it == stages_.end() ? nullptr : &it->second;
}

// ---- Lives and the lease.

void SimWorker::Start() {
  up_ = true;
  stalled_until_ = TimePoint(0);
  Register();
}

void SimWorker::Stop(bool silent) {
  up_ = false;
  registered_ = false;
  loading_.clear();
  stages_.clear();
  if (!silent) {
    Say([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
      cluster->coordinator->OnStreamEnded(machine, incarnation);
    });
  }
}

void SimWorker::Stall(TimePoint until) { stalled_until_ = std::max(stalled_until_, until); }

void SimWorker::BreakControlStream() {
  if (up_ && registered_) {
    OnStreamEnded(incarnation_);
  }
}

void SimWorker::Register() {
  incarnation_ = ++cluster_->incarnations;
  registered_ = false;
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
    cluster->coordinator->OnRegister(machine, incarnation);
  });
  After(kRegisterTimeout, [this] {
    if (!registered_) {
      EndLife("its registration was not answered");
    }
  });
}

void SimWorker::OnRegistered(uint64_t incarnation, uint64_t term) {
  Reach(incarnation, [this, term] {
    world().Tell(
        [&] { return name_ + " has joined the coordinator of term " + std::to_string(term); });
    registered_ = true;
    term_ = term;
    lease_end_ = world().now() + world().scenario.lease;
    Beat();
  });
}

void SimWorker::OnRefused(uint64_t incarnation) {
  Reach(incarnation, [this] { EndLife("its registration was refused"); });
}

void SimWorker::OnLeaseRenewed(uint64_t incarnation, uint64_t term) {
  Reach(incarnation, [this, term] {
    if (term == term_) {
      lease_end_ = world().now() + world().scenario.lease;
    }
  });
}

void SimWorker::OnStreamEnded(uint64_t incarnation) {
  Reach(incarnation, [this] { EndLife("its control stream broke"); });
}

void SimWorker::Beat() {
  if (lease_policy::HasLapsed(world().now(), lease_end_)) {
    world().Count(Rule::kLeaseLapsed);
    EndLife("its lease lapsed");
    return;
  }
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_, term = term_] {
    cluster->coordinator->OnHeartbeat(machine, incarnation, term);
  });
  const nanoseconds left = std::max(lease_end_ - world().now(), nanoseconds(milliseconds(1)));
  After(std::min(world().scenario.lease / 5, left), [this] { Beat(); });
}

// Drops every sequence and stage, and registers anew.
void SimWorker::EndLife(const std::string& why) {
  world().Tell([&] { return name_ + " drops what it holds and registers anew: " + why; });
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
    cluster->coordinator->OnStreamEnded(machine, incarnation);
  });
  registered_ = false;
  loading_.clear();
  stages_.clear();
  incarnation_ = ++cluster_->incarnations;
  After(kRegisterBackoff, [this] { Register(); });
}

// ---- Stages and links.

void SimWorker::OnLoad(uint64_t incarnation, const StageLoad& load) {
  Reach(incarnation, [this, load] {
    stages_.erase(load.deployment);
    loading_[load.deployment] = load.epoch;
    const nanoseconds takes = milliseconds(world().random.Between(5, 60));
    After(takes, [this, load] {
      const auto loading = loading_.find(load.deployment);
      if (loading == loading_.end() || loading->second != load.epoch) {
        return;  // Unloaded meanwhile, or told to load anew.
      }
      loading_.erase(loading);
      Stage& stage = stages_[load.deployment];
      stage = Stage();
      stage.load = load;
      stage.shard = std::make_unique<testing::HashShard>(load.spec);
      stage.runner = std::make_unique<ShardRunner>(
          ShardRunnerConfig{name_, load.deployment, load.epoch, load.stage, load.stage_count,
                            load.spec, kWeightsDigest, kNumericsClass},
          stage.shard.get(), &clock_);
      world().Tell([&] {
        return name_ + " has loaded stage " + std::to_string(load.stage) + " of deployment " +
               std::to_string(load.deployment);
      });
      Say([cluster = cluster_, machine = machine_, incarnation = incarnation_,
           deployment = load.deployment, epoch = load.epoch] {
        cluster->coordinator->OnLoaded(machine, incarnation, deployment, epoch);
      });
    });
  });
}

void SimWorker::OnUnload(uint64_t incarnation, uint64_t deployment) {
  Reach(incarnation, [this, deployment] {
    loading_.erase(deployment);
    if (stages_.erase(deployment) > 0) {
      world().Tell([&] { return name_ + " unloads deployment " + std::to_string(deployment); });
    }
  });
}

void SimWorker::OnFence(uint64_t incarnation, uint64_t deployment, uint64_t epoch) {
  Reach(incarnation, [this, deployment, epoch] {
    Stage* stage = Find(deployment);
    if (stage == nullptr) {
      Acknowledge(
          deployment, epoch,
          Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT", "not loaded here").Node(name_));
      return;
    }
    stage->wanted_epoch = std::max(stage->wanted_epoch, epoch);
    if (epoch > stage->epoch) {
      stage->queue.clear();
    }
    if (const absl::Status status = stage->runner->Fence(epoch); !status.ok()) {
      Acknowledge(deployment, epoch, status);
      return;
    }
    stage->epoch = std::max(stage->epoch, epoch);
    if (stage->onward_epoch == epoch) {
      Acknowledge(deployment, epoch, absl::OkStatus());
      return;
    }
    stage->onward_epoch = 0;
    Dial(deployment, epoch, world().now() + world().scenario.step_timeout / 2);
  });
}

// Opens the link to the next stage, again and again until it works or time is up.
void SimWorker::Dial(uint64_t deployment, uint64_t epoch, TimePoint deadline) {
  Stage* stage = Find(deployment);
  if (stage == nullptr || stage->wanted_epoch != epoch || stage->onward_epoch == epoch) {
    return;
  }
  if (world().now() >= deadline) {
    Acknowledge(deployment, epoch,
                Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED",
                      "the link to the next stage could not be opened")
                    .Node(name_));
    return;
  }
  const Machine next = stage->load.next;
  auto answer = [this, deployment, epoch, deadline, next,
                 incarnation = incarnation_](bool accepted) {
    cluster_->network->SendControl(
        next, machine_, [this, deployment, epoch, deadline, incarnation, accepted] {
          Reach(incarnation, [this, deployment, epoch, deadline, accepted] {
            OnDialed(deployment, epoch, accepted, deadline);
          });
        });
  };
  cluster_->network->SendControl(
      machine_, next,
      [cluster = cluster_, next, incarnation = stage->load.next_incarnation, deployment, epoch,
       answer] {
        if (next == kCoordinatorMachine) {
          cluster->coordinator->OnLinkOpen(incarnation, deployment, epoch, answer);
        } else {
          cluster->workers[static_cast<size_t>(next)]->OnLinkOpen(incarnation, deployment, epoch,
                                                                  answer);
        }
      });
  After(kDialTry, [this, deployment, epoch, deadline] { Dial(deployment, epoch, deadline); });
}

void SimWorker::OnDialed(uint64_t deployment, uint64_t epoch, bool accepted, TimePoint deadline) {
  Stage* stage = Find(deployment);
  if (stage == nullptr || stage->wanted_epoch != epoch || stage->onward_epoch == epoch) {
    return;
  }
  if (!accepted) {
    After(kDialPause, [this, deployment, epoch, deadline] { Dial(deployment, epoch, deadline); });
    return;
  }
  stage->onward_epoch = epoch;
  Acknowledge(deployment, epoch, absl::OkStatus());
}

void SimWorker::OnLinkOpen(uint64_t incarnation, uint64_t deployment, uint64_t epoch,
                           const std::function<void(bool)>& answer) {
  Reach(incarnation, [this, deployment, epoch, answer] {
    const Stage* stage = Find(deployment);
    answer(stage != nullptr && stage->epoch == epoch);
  });
}

void SimWorker::Acknowledge(uint64_t deployment, uint64_t epoch, const absl::Status& status) {
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_, deployment, epoch,
       status] {
    cluster->coordinator->OnFenceAck(machine, incarnation, deployment, epoch, status);
  });
}

// ---- Steps.

void SimWorker::OnFrame(uint64_t incarnation, const std::shared_ptr<const StepMessage>& frame) {
  if (!up_ || incarnation != incarnation_) {
    world().Count(Rule::kOtherIncarnation);
    return;
  }
  Reach(incarnation, [this, frame] {
    Stage* stage = Find(frame->header.deployment());
    if (stage == nullptr) {
      world().Count(Rule::kNoDeployment);
      return;
    }
    stage->queue.push_back(frame);
    ComputeNext(frame->header.deployment());
  });
}

void SimWorker::OnGarbledFrame(uint64_t incarnation, uint64_t deployment, uint64_t epoch) {
  Reach(incarnation, [this, deployment, epoch] {
    world().Count(Rule::kBadChecksum);
    if (Stage* stage = Find(deployment); stage != nullptr) {
      Report(stage, epoch,
             Error(absl::StatusCode::kDataLoss, "FRAME_CRC", "a frame's checksum does not match")
                 .Node(name_));
    }
  });
}

void SimWorker::ComputeNext(uint64_t deployment) {
  Stage* stage = Find(deployment);
  if (stage == nullptr || stage->computing || stage->queue.empty()) {
    return;
  }
  const std::shared_ptr<const StepMessage> frame = stage->queue.front();
  stage->queue.pop_front();
  stage->computing = true;
  const auto rows = frame->header.rows();
  const uint32_t speed = 1 + static_cast<uint32_t>(machine_) % 3;
  After(std::chrono::microseconds((100 + 10 * rows) * speed), [this, deployment, frame] {
    if (Stage* loaded = Find(deployment); loaded != nullptr) {
      loaded->computing = false;
      Compute(deployment, *frame);
      ComputeNext(deployment);
    }
  });
}

void SimWorker::Compute(uint64_t deployment, const StepMessage& frame) {
  Stage* stage = Find(deployment);
  const size_t before = stage->runner->stats().sequences;
  const uint64_t epoch = frame.header.epoch();
  absl::StatusOr<ShardRunner::Output> output = stage->runner->Step(frame);
  if (!output.ok()) {
    world().Tell(
        [&] { return name_ + " breaks the link: " + std::string(output.status().message()); });
    if (ReasonOf(output.status()) == "STEP_GAP") {
      world().Count(Rule::kStepGap);
    }
    Report(stage, epoch, output.status());
    return;
  }
  if (std::holds_alternative<ShardRunner::Discarded>(*output)) {
    world().Tell([&] { return name_ + " discards " + Show(frame.header); });
    world().Count(epoch < stage->epoch ? Rule::kOldEpoch : Rule::kSeenStep);
    return;
  }
  if (frame.header.resync() && stage->runner->stats().sequences < before) {
    world().Count(Rule::kReleasedAtResync);
  }
  CountErrors(*stage, *output);
  SendOn(stage, *std::move(output));
}

void SimWorker::SendOn(Stage* stage, ShardRunner::Output output) {
  const StageLoad& load = stage->load;
  const bool last = std::holds_alternative<ResultMessage>(output);
  const uint64_t epoch = last ? std::get<ResultMessage>(output).header.epoch()
                              : std::get<StepMessage>(output).header.epoch();
  if (stage->onward_epoch != epoch) {
    Report(stage, epoch,
           Error(absl::StatusCode::kFailedPrecondition, "LINK_NOT_OPEN",
                 "a step was computed while the link onward was not open")
               .Node(name_));
    return;
  }
  Network::Frame sent;
  sent.link = last ? world().scenario.stages : load.stage + 1;
  sent.channel = ChannelOf(load.deployment, epoch);
  sent.from = machine_;
  sent.to = load.next;
  const uint64_t to = load.next_incarnation;
  if (last) {
    auto result = std::make_shared<const ResultMessage>(std::get<ResultMessage>(std::move(output)));
    world().Tell([&] { return sent.what = Show(result->header), name_ + " answers " + sent.what; });
    sent.arrives = [cluster = cluster_, to, result] { cluster->coordinator->OnResult(to, result); };
    sent.garbled = [cluster = cluster_, to, deployment = load.deployment, epoch] {
      cluster->coordinator->OnGarbledResult(to, deployment, epoch);
    };
  } else {
    auto frame = std::make_shared<const StepMessage>(std::get<StepMessage>(std::move(output)));
    SimWorker* next = cluster_->workers[static_cast<size_t>(load.next)].get();
    world().Tell([&] {
      sent.what = Show(frame->header);
      return name_ + " sends " + sent.what + " on to " + next->name();
    });
    sent.arrives = [next, to, frame] { next->OnFrame(to, frame); };
    sent.garbled = [next, to, deployment = load.deployment, epoch] {
      next->OnGarbledFrame(to, deployment, epoch);
    };
  }
  cluster_->network->SendFrame(sent);
}

void SimWorker::Report(Stage* stage, uint64_t epoch, const absl::Status& status) {
  if (epoch < stage->wanted_epoch || stage->faulted >= epoch) {
    return;  // One fault ends an epoch.
  }
  stage->faulted = epoch;
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_,
       deployment = stage->load.deployment, epoch, status] {
    cluster->coordinator->OnLinkFault(machine, incarnation, deployment, epoch, status);
  });
}

// ---- What the rules did, and what is held.

void SimWorker::CountErrors(const Stage& stage, const ShardRunner::Output& output) {
  const bool last = std::holds_alternative<ResultMessage>(output);
  auto count = [&](const auto& entries) {
    for (const auto& entry : entries) {
      if (entry.has_error() && entry.error_stage() == stage.load.stage) {
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

void SimWorker::CountError(const v1::ErrorDetail& error) {
  static const std::map<std::string, Rule> kRules = {
      {"POSITION_MISMATCH", Rule::kPosition},  {"FINGERPRINT_MISMATCH", Rule::kFingerprint},
      {"STALE_GENERATION", Rule::kGeneration}, {"SEQUENCE_NOT_FOUND", Rule::kNotFound},
      {"SEQUENCE_TWICE", Rule::kTwice},        {"NON_FINITE", Rule::kNotFinite},
      {"BACKEND_FAILED", Rule::kBackend}};
  world().Tell([&] { return name_ + " refuses: " + error.message(); });
  if (const auto rule = kRules.find(error.reason()); rule != kRules.end()) {
    world().Count(rule->second);
  } else {
    // KV_PAGES above all: the ledger admitted what the stage has no room for.
    world().Fail(name_ + " refused what no fault explains: " + error.reason() + ": " +
                 error.message());
  }
}

bool SimWorker::FlipBit(uint64_t random) {
  for (auto& [deployment, stage] : stages_) {
    SequenceTable& table = stage.runner->sequences_for_test();
    std::vector<std::pair<std::string, uint64_t>> names;
    table.ReleaseIf([&names](const Sequence& sequence) {
      names.emplace_back(sequence.request_id, sequence.generation);
      return false;
    });
    if (names.empty()) {
      continue;
    }
    const auto& [id, generation] = names[random % names.size()];
    Sequence* sequence = table.Find(id, generation);
    const uint64_t bit = uint64_t{1} << (random >> 8) % 64;
    const size_t which = (random >> 16) % (sequence->page_fingerprints.size() + 1);
    if (which == 0) {
      sequence->fingerprint ^= bit;
    } else {
      sequence->page_fingerprints[which - 1] ^= bit;
    }
    world().Tell(
        [&, id = id] { return "FAULT: a bit of " + name_ + "'s record of " + id + " flips"; });
    return true;
  }
  return false;
}

bool SimWorker::FailBackend() {
  for (auto& [deployment, stage] : stages_) {
    world().Tell([&] { return "FAULT: the next step of " + name_ + "'s device fails"; });
    stage.shard->FailNextRead();
    return true;
  }
  return false;
}

bool SimWorker::PoisonStage(uint64_t random) {
  for (auto& [deployment, stage] : stages_) {
    const StageSpec& spec = stage.load.spec;
    const auto layers = spec.last_layer - spec.first_layer + 1;
    world().Tell([&] {
      return "FAULT: " + name_ + " computes NaN for token " + std::to_string(kPoisonToken);
    });
    stage.shard->PoisonToken(kPoisonToken,
                             spec.first_layer + static_cast<uint32_t>(random % layers));
    return true;
  }
  return false;
}

size_t SimWorker::sequences(uint64_t deployment) const {
  size_t sequences = 0;
  for (const auto& [id, stage] : stages_) {
    if (deployment == 0 || id == deployment) {
      sequences += stage.runner->stats().sequences;
    }
  }
  return sequences;
}

uint64_t SimWorker::pages_in_use(uint64_t deployment) const {
  uint64_t pages = 0;
  for (const auto& [id, stage] : stages_) {
    if (deployment == 0 || id == deployment) {
      const KvPool& pool = stage.runner->sequences_for_test().pool();
      for (uint32_t group = 0; group < pool.groups(); ++group) {
        pages += pool.total(group) - pool.free(group);
      }
    }
  }
  return pages;
}

}  // namespace strata::sim
