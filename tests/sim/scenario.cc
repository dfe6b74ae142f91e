#include "tests/sim/scenario.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "common/limits.h"
#include "common/sampling_params.h"
#include "tests/sim/random.h"

namespace strata::sim {
namespace {

constexpr uint32_t kIds = 7;  // Few, so that they are used again.
constexpr uint32_t kPromptFamilies = 3;
// Of the scenarios that may have them.
constexpr uint32_t kRanksPercent = 30;
// The first seeds have none: mutants keep many of them.
constexpr uint64_t kSeedsWithoutRanks = 600;

nanoseconds Milliseconds(uint64_t ms) { return milliseconds(ms); }

v1::SequenceParams DrawParams(Random* random) {
  v1::SequenceParams params = GreedyParams();
  v1::SamplingParams* sampling = params.mutable_sampling();
  sampling->set_seed(random->Next());
  if (random->OneIn(2)) {
    sampling->set_temperature(1);
    sampling->set_top_p(0.9f);
  }
  if (random->OneIn(3)) {
    sampling->set_frequency_penalty(0.5f);
    sampling->set_repetition_penalty(1.2f);
  }
  if (random->OneIn(4)) {
    params.set_logprobs(true);
    params.set_top_logprobs(2);
  }
  return params;
}

// Prompts of one family begin alike, as chats with one system prompt do.
std::vector<uint32_t> DrawPrompt(uint64_t seed, uint32_t length, Random* random) {
  const uint64_t family = Mix64(seed + random->Below(kPromptFamilies));
  const uint32_t few = random->Between(0, 24);
  const uint32_t shared = 3 * few;
  std::vector<uint32_t> prompt;
  for (uint32_t i = 0; i < length; ++i) {
    const uint64_t own = i < few ? 0 : random->Next();
    const uint64_t draw = i < shared ? Mix64(family + i) : own;
    prompt.push_back(static_cast<uint32_t>(draw % kPoisonToken));
  }
  return prompt;
}

ClientRequest DrawRequest(const Scenario& scenario, bool long_answers, nanoseconds horizon,
                          Random* random) {
  ClientRequest request;
  request.at = Milliseconds(random->Below(static_cast<uint64_t>(ToMs(horizon))));
  request.id = "r" + std::to_string(random->Below(kIds));
  const uint32_t kind = random->Below(24);
  uint32_t length = random->Between(1, random->OneIn(3) ? 70 : 20);
  request.max_tokens = long_answers ? random->Between(16, 60) : random->Between(1, 14);
  request.priority = random->OneIn(4) ? static_cast<int32_t>(random->Below(3)) - 1 : 0;
  request.guaranteed = random->OneIn(8);
  if (kind == 0) {
    length = scenario.context;  // Longer than the context with what it generates.
  } else if (kind == 1) {
    length = std::min<uint32_t>(scenario.context - 20,
                                static_cast<uint32_t>(scenario.kv_pages) * kPageTokens + 1);
  }
  request.prompt = DrawPrompt(scenario.seed, length, random);
  if (random->OneIn(20)) {
    request.prompt[random->Below(request.prompt.size())] = kPoisonToken;
  }
  request.params = DrawParams(random);
  if (random->OneIn(5)) {
    for (int i = 0; i < 8; ++i) {
      request.stop_ids.push_back(random->Below(kPoisonToken));
    }
    if (const uint64_t own = Mix64(request.params.sampling().seed()); own % 2 == 0) {
      request.params.set_min_tokens(static_cast<uint32_t>(1 + own / 2 % request.max_tokens));
      request.params.mutable_stop_ids()->Assign(request.stop_ids.begin(), request.stop_ids.end());
    }
  }
  request.replace = random->OneIn(3);
  if (random->OneIn(4)) {
    request.deadline_after = Milliseconds(random->Between(5, random->OneIn(2) ? 100 : 6000));
  }
  if (random->OneIn(5)) {
    request.cancel_after = Milliseconds(random->Between(0, random->OneIn(2) ? 60 : 3000));
  }
  request.retries = random->OneIn(2) ? random->Between(1, 20) : 0;
  return request;
}

// Every other answer keeps to masks, of which some recur, and may be complete before its end.
void HoldAnswers(Scenario* scenario, Random* random) {
  for (ClientRequest& request : scenario->requests) {
    if (random->OneIn(2)) {
      continue;
    }
    request.held = ConstraintScript{.vocab = kVocab,
                                    .salt = 1 + random->Below(1u << 30),
                                    .one_in = random->Between(2, 20),
                                    .tokens = random->Between(1, 2 * request.max_tokens),
                                    .recur = random->OneIn(2) ? random->Between(1, 4) : 0};
    // Masks bar what ends it too early.
    request.stop_ids.clear();
    request.params.set_min_tokens(0);
    request.params.clear_stop_ids();
  }
}

nanoseconds DrawDuration(FaultKind kind, Random* random) {
  switch (kind) {
    case FaultKind::kDelayFrame:
    case FaultKind::kStallLink:
    case FaultKind::kStallWorker:
      return Milliseconds(random->OneIn(2) ? random->Between(1, 400) : random->Between(400, 6000));
    case FaultKind::kLateCopy:
      return Milliseconds(random->Between(1, 5000));
    case FaultKind::kReorderFrames:
      return Milliseconds(random->Between(1, 40));
    default:
      return Milliseconds(random->Between(50, 5000));
  }
}

Fault DrawFault(nanoseconds horizon, Random* random) {
  Fault fault;
  fault.kind = static_cast<FaultKind>(random->Below(kDrawnFaultKinds));
  fault.at = Milliseconds(random->Below(static_cast<uint64_t>(ToMs(horizon))));
  fault.target = random->Below(1 << 16);
  fault.lasts = DrawDuration(fault.kind, random);
  fault.random = random->Next();
  return fault;
}

// A client alone on the cluster gives up while a frame of its request hangs at a stopped sender.
// Everything else comes later.
void PrependStoppedSender(Scenario* scenario, Random* random) {
  Fault fault;
  fault.kind = FaultKind::kDelayFrame;
  fault.target = random->Below(scenario->stages + 1);
  fault.lasts = scenario->step_timeout + Milliseconds(random->Between(1, 3000));
  const nanoseconds later = fault.lasts + Milliseconds(random->Between(100, 3000));
  for (ClientRequest& request : scenario->requests) {
    request.at += later;
  }
  for (Fault& other : scenario->faults) {
    other.at += later;
  }
  ClientRequest& first = scenario->requests.front();
  first.at = Milliseconds(random->Between(1, 20));
  first.cancel_after = Milliseconds(random->Between(10, 200));
  scenario->faults.insert(scenario->faults.begin(), fault);
}

// Requests of which one or two are poison to a machine, and no other fault.
void PoisonOnly(Scenario* scenario, Random* random) {
  Fault fault;
  fault.kind = static_cast<FaultKind>(kDrawnFaultKinds +
                                      random->Below(static_cast<uint32_t>(kPoisonFaultKinds)));
  fault.target = random->Below(1 << 16);
  scenario->faults = {fault};
  scenario->poison_only = true;
  scenario->forks_one_in = 0;  // That is a fault too.
  scenario->prefix_cache = random->OneIn(2);
  scenario->max_batch_items = random->Between(4, 16);
  scenario->workers = scenario->stages;
  for (ClientRequest& request : scenario->requests) {
    std::replace(request.prompt.begin(), request.prompt.end(), kPoisonToken, kPoisonToken - 1);
    if (random->OneIn(2)) {
      request.at /= 20;  // Many in one step.
    }
  }
  for (uint32_t i = random->Between(1, 2); i > 0; --i) {
    std::vector<uint32_t>& prompt =
        scenario->requests[random->Below(scenario->requests.size())].prompt;
    prompt[random->Below(prompt.size())] = kPoisonToken;
  }
}

// Beside its other faults: loads that fail, and workers that are told to stop.
void FailLoads(Scenario* scenario, nanoseconds horizon, Random* random) {
  constexpr FaultKind kLoads[] = {FaultKind::kResize, FaultKind::kReplan, FaultKind::kUnloadAndLoad,
                                  FaultKind::kCrashWorker};
  for (uint32_t i = random->Between(1, 4); i > 0; --i) {
    Fault fault = DrawFault(horizon, random);
    fault.kind = FaultKind::kLeaveWorker;
    if (!random->OneIn(3)) {
      fault.kind = FaultKind::kFailLoad;
      scenario->faults.push_back(fault);
      if (random->OneIn(3)) {  // What is done about it fails too.
        scenario->faults.push_back(fault);
      }
      fault.kind = kLoads[random->Below(std::size(kLoads))];
      fault.random = random->Next();
    }
    scenario->faults.push_back(fault);
  }
}

// Workers are lost and told to stop, and others take their layers.
void MoveLayers(Scenario* scenario, nanoseconds horizon, Random* random) {
  constexpr FaultKind kLosses[] = {FaultKind::kCrashWorker,     FaultKind::kPowerOffWorker,
                                   FaultKind::kPartitionWorker, FaultKind::kStallWorker,
                                   FaultKind::kLeaveWorker,     FaultKind::kMoveModel};
  scenario->moves = true;
  scenario->workers = scenario->stages + random->Below(3);
  scenario->layers = scenario->stages + random->Below(4);
  for (uint32_t i = random->Between(1, 5); i > 0; --i) {
    Fault fault = DrawFault(horizon, random);
    fault.kind = kLosses[random->Below(std::size(kLosses))];
    scenario->faults.push_back(fault);
  }
}

// Links and workers that are half there, and others that may take their layers.
void HalfCut(Scenario* scenario, nanoseconds horizon, Random* random) {
  constexpr FaultKind kHalves[] = {FaultKind::kMuteWorker, FaultKind::kDeafenWorker,
                                   FaultKind::kCutOneWay, FaultKind::kSlowWorker};
  scenario->moves = random->OneIn(2);
  scenario->workers = scenario->stages + random->Between(1, 2);
  for (uint32_t i = random->Between(1, 6); i > 0; --i) {
    Fault fault = DrawFault(horizon, random);
    fault.kind = kHalves[random->Below(std::size(kHalves))];
    fault.lasts =
        Milliseconds(random->OneIn(2) ? random->Between(10, 800) : random->Between(800, 6000));
    scenario->faults.push_back(fault);
  }
}

// Workers have caches of weights, which get lost, damaged and full, beside other faults; and
// workers are lost, so that others load their layers.
void UseCaches(Scenario* scenario, nanoseconds horizon, Random* random) {
  constexpr FaultKind kOfCaches[] = {FaultKind::kDamageCache, FaultKind::kEvictCache,
                                     FaultKind::kFillDisk, FaultKind::kSpoilBlob};
  constexpr FaultKind kLoads[] = {FaultKind::kCrashWorker, FaultKind::kPowerOffWorker,
                                  FaultKind::kLeaveWorker, FaultKind::kMoveModel,
                                  FaultKind::kReplan};
  scenario->caches = true;
  scenario->standby = random->Below(2);
  scenario->moves = scenario->standby > 0 || !random->OneIn(3);
  scenario->workers = scenario->stages + random->Between(1, 3);
  scenario->layers = scenario->stages + random->Below(4);
  for (uint32_t i = random->Between(1, 6); i > 0; --i) {
    Fault fault = DrawFault(horizon, random);
    fault.kind = kOfCaches[random->Below(std::size(kOfCaches))];
    scenario->faults.push_back(fault);
    if (random->OneIn(2)) {  // And a load that meets it.
      fault.kind = kLoads[random->Below(std::size(kLoads))];
      fault.at += Milliseconds(random->Below(200));
      fault.target = random->Below(1 << 16);
      scenario->faults.push_back(fault);
    }
  }
}

// A worker gets so much slower that a full step takes longer than what was known of it explains,
// and less than the step timeout. It stays so, and every request is served all the same.
void SlowForGood(Scenario* scenario, nanoseconds horizon, Random* random) {
  scenario->moves = random->OneIn(4);
  scenario->step_timeout = Milliseconds(random->Between(300, 500));
  scenario->max_batch_tokens = random->Between(14, 24);
  scenario->requests.resize(std::min<size_t>(scenario->requests.size(), 6));
  Fault fault = DrawFault(horizon, random);
  fault.kind = FaultKind::kSlowWorker;
  fault.at = random->OneIn(2) ? horizon : fault.at;
  const nanoseconds full = StepTime(scenario->max_batch_tokens, fault.target % scenario->workers);
  fault.random = scenario->step_timeout * random->Between(45, 75) / 100 / full;
  fault.lasts = nanoseconds(0);
  scenario->faults.push_back(fault);
}

// The model moves, and nothing else happens.
void MoveOnly(Scenario* scenario, nanoseconds horizon, Random* random) {
  scenario->moves_only = scenario->moves = true;
  scenario->workers = scenario->stages + random->Below(3);
  scenario->layers = scenario->stages + random->Below(4);
  scenario->forks_one_in = 0;  // That is a fault too.
  scenario->faults.clear();
  for (uint32_t i = random->Between(1, 8); i > 0; --i) {
    Fault fault = DrawFault(horizon, random);
    fault.kind = FaultKind::kMoveModel;
    scenario->faults.push_back(fault);
  }
}

// Whether a worker computes slowly for good, as its machine says.
bool SlowsForGood(const Scenario& scenario) {
  return std::any_of(scenario.faults.begin(), scenario.faults.end(), [](const Fault& fault) {
    return fault.kind == FaultKind::kSlowWorker && fault.lasts == nanoseconds(0);
  });
}

// Stages are computed by two or three workers each, or some of them are.
void UseRanks(Scenario* scenario, Random* random) {
  scenario->ranks = random->Between(2, 3);
  scenario->ranks_everywhere = random->OneIn(2);
  const bool everywhere = scenario->ranks_everywhere;
  if (!scenario->waves) {
    scenario->stages = std::min(scenario->stages, everywhere ? 2u : 3u);
  }
  scenario->layers = std::max(scenario->layers, scenario->stages);
  const uint32_t shared = everywhere ? scenario->stages : random->Between(1, scenario->stages);
  scenario->workers =
      scenario->stages + shared * (scenario->ranks - 1) + random->Below(scenario->moves ? 3 : 2);
}

template <typename T>
std::vector<T> Pick(const std::vector<T>& all, const std::vector<size_t>& indices) {
  std::vector<T> picked;
  for (size_t i : indices) {
    picked.push_back(all.at(i));
  }
  return picked;
}

std::vector<size_t> Indices(size_t count) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

void SpreadPrompts(Scenario* scenario, Random* random) {
  scenario->waves = true;
  scenario->stages = 2;
  scenario->workers = 2 + random->Below(2);
  scenario->layers = random->Between(4, 14);
  scenario->kv_pages = random->Between(20, 60);
  scenario->max_batch_tokens = random->Between(30, 90);
  scenario->max_batch_items = 8;
  scenario->max_sessions = random->Between(6, 12);
  scenario->step_timeout = Milliseconds(random->Between(1000, 2000));
  scenario->latency = std::chrono::microseconds(random->Between(20, 200));
  scenario->jitter = std::chrono::microseconds(random->Between(0, 100));
  // Many at once, and every other one with a long prompt.
  for (ClientRequest& request : scenario->requests) {
    request.at = request.at / 4;
    if (random->OneIn(2) && request.prompt.size() < scenario->context / 2) {
      const std::vector<uint32_t> more =
          DrawPrompt(scenario->seed, scenario->context / 2 + random->Below(20), random);
      request.prompt.insert(request.prompt.end(), more.begin() + request.prompt.size(), more.end());
      request.max_tokens = std::min(request.max_tokens, scenario->context / 4);
      request.params.set_min_tokens(0);
      request.params.clear_stop_ids();
    }
  }
  for (Fault& fault : scenario->faults) {
    fault.at = fault.at / 4;
    fault.kind = random->OneIn(4) ? FaultKind::kRepeatItem : fault.kind;
  }
}

}  // namespace

v1::SequenceParams GreedyParams() {
  v1::SequenceParams params;
  *params.mutable_sampling() = PlainSampling(/*temperature=*/0, /*seed=*/0);
  return params;
}

Scenario MakeScenario(uint64_t seed, bool with_drafts) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.stages = random.Between(1, 4);
  scenario.workers = scenario.stages + random.Below(2);
  scenario.layers = scenario.stages + random.Below(2);
  scenario.kv_pages = random.OneIn(2) ? random.Between(5, 9) : random.Between(10, 40);
  // A pool for a few requests at their start, and for one or two at their end.
  const bool long_answers = random.OneIn(3);
  scenario.kv_pages = long_answers ? random.Between(6, 10) : scenario.kv_pages;
  scenario.kv_watermark = long_answers ? 0 : random.Below(3) * 0.05;
  scenario.prefix_cache = seed % 8 != 0;
  scenario.max_batch_tokens = random.Between(4, 48);
  scenario.max_batch_items = random.Between(2, 8);
  scenario.max_sessions = random.Between(2, 12);
  scenario.max_queued_requests = random.OneIn(3) ? 2 : 12;
  scenario.step_timeout = Milliseconds(random.Between(300, 2000));
  scenario.lease = Milliseconds(random.Between(800, 3000));
  scenario.latency = std::chrono::microseconds(random.Between(20, 2000));
  scenario.jitter = std::chrono::microseconds(random.Between(0, 1000));
  scenario.forks_one_in = random.OneIn(3) ? 0 : random.Between(1, 4);
  // Half of the runs are dense: everything at once within a few hundred milliseconds.
  const nanoseconds horizon =
      Milliseconds(random.OneIn(2) ? random.Between(100, 1000) : random.Between(1000, 15000));
  const uint32_t requests = random.Between(4, 40);
  for (uint32_t i = 0; i < requests; ++i) {
    scenario.requests.push_back(DrawRequest(scenario, long_answers, horizon, &random));
  }
  const uint32_t faults = random.Between(0, 12);
  for (uint32_t i = 0; i < faults; ++i) {
    Fault fault = DrawFault(horizon, &random);
    if (i > 0 && random.OneIn(2)) {  // On the heels of the one before.
      fault.at = scenario.faults.back().at + Milliseconds(random.Below(8));
    }
    scenario.faults.push_back(fault);
  }
  if (random.OneIn(8)) {
    PrependStoppedSender(&scenario, &random);
  }
  if (seed % 8 == 2) {
    Random waves(Mix64(seed));
    SpreadPrompts(&scenario, &waves);
  }
  if (seed % 5 == 3) {
    Random held(Mix64(seed + 1));
    HoldAnswers(&scenario, &held);
  }
  if (seed % 8 == 3) {
    Random loads(Mix64(seed));
    FailLoads(&scenario, horizon, &loads);
  }
  if (seed % 8 == 4 || seed % 8 == 5) {
    Random moves(Mix64(seed));
    MoveLayers(&scenario, horizon, &moves);
  }
  if (seed % 16 == 14 || seed % 16 == 15) {
    Random halves(Mix64(seed));
    halves.OneIn(4) ? SlowForGood(&scenario, horizon, &halves)
                    : HalfCut(&scenario, horizon, &halves);
  }
  if (seed % 16 == 12) {
    Random moves(Mix64(seed));
    MoveOnly(&scenario, horizon, &moves);
  }
  if (seed % 16 == 0 || seed % 16 == 13) {
    Random caches(Mix64(seed + 2));
    UseCaches(&scenario, horizon, &caches);
  }
  if (seed % 8 == 1) {
    Random poison(Mix64(seed));
    PoisonOnly(&scenario, &poison);
  }
  if (with_drafts || seed % 7 == 3 || seed % 11 == 4) {
    Random drafts(Mix64(seed + 3));
    scenario.drafts = true;
    scenario.drafts_right = drafts.OneIn(4) ? 100 * drafts.Below(2) : drafts.Below(100);
    scenario.draft_model = drafts.OneIn(2);
  }
  // Stages over ranks have no --standby.
  if (Random ranks(Mix64(seed + 4)); seed > kSeedsWithoutRanks &&
                                     ranks.Below(100) < kRanksPercent && !scenario.caches &&
                                     !SlowsForGood(scenario)) {
    UseRanks(&scenario, &ranks);
  }
  return scenario;
}

Part Whole(const Scenario& scenario) {
  return {Indices(scenario.requests.size()), Indices(scenario.faults.size())};
}

Scenario Reduced(const Scenario& scenario, const Part& part) {
  Scenario reduced = scenario;
  reduced.requests = Pick(scenario.requests, part.requests);
  reduced.faults = Pick(scenario.faults, part.faults);
  return reduced;
}

}  // namespace strata::sim
