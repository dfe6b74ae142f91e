#include "tests/sim/ranks/rank_simulation.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/model/rank_outputs.h"
#include "common/status.h"
#include "tests/sim/random.h"
#include "tests/sim/ranks/faulty_rank.h"
#include "tests/sim/ranks/fibers.h"
#include "tests/sim/ranks/rank_network.h"
#include "tests/sim/ranks/ranked_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/ranks/leader_shard.h"
#include "worker/ranks/rank_follower.h"

namespace strata::sim {
namespace {

constexpr uint32_t kMostDrawnRanks = 4;
constexpr nanoseconds kTimeout = milliseconds(10'000);
constexpr nanoseconds kSilence = milliseconds(10'000);
// Where nothing is on its way time goes on by so much.
constexpr nanoseconds kTick = milliseconds(250);
// For how long a call of the leader may last: each of its waits is bounded, and one that fails asks
// once more why.
constexpr nanoseconds kMostOfACall = 3 * kTimeout;
// Within which a rank that is told to stop does.
constexpr nanoseconds kMostToStop = milliseconds(1'000);
constexpr TimePoint kMost = milliseconds(3'600'000);

std::unique_ptr<Backend> NewBackend() {
  auto backend = MakeCpuBackend({.threads = 1});
  STRATA_CHECK(backend.ok());
  return *std::move(backend);
}

class RankSimulation {
 public:
  RankSimulation(uint64_t seed, const std::function<void(const std::string&)>& tell)
      : random_(seed), network_(&clock_, &random_), fibers_(&random_), tell_(tell) {}

  RankRun Run();

 private:
  struct Follower {
    std::unique_ptr<RankFollower> follower;
    uint64_t number = 0;  // Of the rank's followers.
    bool running = false;
    absl::Status ended;
  };
  // Strikes at a step of the leader, after so many bytes or ends have moved.
  struct Fault {
    RankFault kind;
    uint32_t rank;
    uint64_t step;
    uint64_t moves;
    nanoseconds time;
    bool armed = false;
    uint64_t strikes_at = 0;  // By the network's moves.
  };

  void Draw();
  void Load();
  void DrawFaults();
  // The leader's fiber.
  void Lead();
  void LeadSteps(LeaderShard* leader);
  void Step(LeaderShard* leader);
  std::vector<RankedItem> DrawStep();
  void Compare(const std::vector<RankedItem>& items, const std::vector<float>& logits);
  absl::StatusOr<RankChannels> Join(uint64_t epoch);
  void EndFollower(uint32_t rank);
  void Strike();
  bool StrikeOne(const Fault& fault);
  void CheckBroken(const absl::Status& status);
  // Whether a fault may have broken the ranks of this epoch.
  bool Explained();
  // Of a fiber: other fibers run until then.
  void Sleep(nanoseconds time);
  void Advance();

  void Find(const std::string& what) {
    if (!run_.finding) {
      run_.finding = what;
      Tell("FINDING: " + what);
    }
  }
  void Tell(const std::string& what) const {
    if (tell_) {
      tell_(absl::StrCat(clock_.Now() / nanoseconds(1000), " us  ", what));
    }
  }

  Random random_;
  RankClock clock_;
  RankNetwork network_;
  Fibers fibers_;
  const std::function<void(const std::string&)> tell_;

  const RankedModel* model_ = nullptr;
  std::vector<double> shares_;
  RankTimes times_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Shard> alone_;
  std::vector<std::unique_ptr<RankShard>> shards_;
  std::vector<RankFaults> faults_;
  std::vector<std::unique_ptr<RankShard>> faulty_;  // Of followers: the leader has its own.
  std::vector<Follower> followers_;
  std::vector<RankedSequence> sequences_;
  std::vector<Fault> script_;
  uint64_t step_ = 0;
  uint64_t epoch_ = 0;
  bool struck_ = false;  // Something that may break the ranks, in this epoch.
  std::vector<TimePoint> wakes_;
  bool over_ = false;
  RankRun run_;
};

void RankSimulation::Draw() {
  model_ = &RankedModelOf(random_.Below(kRankedModels));
  const uint32_t ranks = random_.Between(2, kMostDrawnRanks);
  const bool equal = random_.OneIn(2);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    shares_.push_back(equal ? 1 : random_.Between(1, 4));
    times_.names.push_back(absl::StrCat("w", rank));
  }
  times_.clock = &clock_;
  times_.timeout = kTimeout;
  times_.silence = kSilence;
  times_.pause = [this](uint64_t) { fibers_.Pause(); };
  PageId page = 0;
  sequences_.resize(random_.Between(1, 3));
  for (RankedSequence& sequence : sequences_) {
    sequence.left = random_.Between(1, 5);
    const uint32_t prompt = random_.Between(1, 30);
    for (uint32_t i = 0; i < prompt; ++i) {
      sequence.ids.push_back(random_.Below(model_->model.spec().vocab));
    }
    while (sequence.pages.size() * kPageTokens < prompt + sequence.left) {
      sequence.pages.push_back(page++);
    }
  }
}

void RankSimulation::Load() {
  RankPlace place;
  place.shares = *SharesByWeight(shares_);
  const StageSpec& spec = model_->stage.spec;
  backends_.push_back(NewBackend());
  alone_ = *backends_[0]->Load(spec, model_->model, nullptr, nullptr);
  faults_.resize(shares_.size());
  followers_.resize(shares_.size());
  for (; place.rank < shares_.size(); ++place.rank) {
    backends_.push_back(NewBackend());
    shards_.push_back(*backends_.back()->LoadRank(spec, place, model_->model, nullptr, nullptr));
    faulty_.push_back(std::make_unique<FaultyRank>(shards_.back().get(), &faults_[place.rank]));
  }
}

void RankSimulation::DrawFaults() {
  const uint32_t count = random_.OneIn(5) ? 0 : random_.Between(1, 3);
  const uint64_t step = random_.Between(1, 12);
  for (uint32_t i = 0; i < count; ++i) {
    Fault fault;
    fault.kind = static_cast<RankFault>(random_.Below(kRankFaults));
    fault.rank = random_.Below(static_cast<uint32_t>(shares_.size()));
    // Some at once.
    fault.step = random_.OneIn(2) ? step : random_.Between(1, 12);
    fault.moves = random_.Below(random_.OneIn(2) ? 20 : 300);
    fault.time = random_.OneIn(2) ? milliseconds(random_.Between(1, 3'000))
                                  : milliseconds(random_.Between(20'000, 60'000));
    if (fault.kind == RankFault::kStop && fault.rank == 0) {
      fault.rank = 1;
    }
    // Ranks that are behind together agree, and nobody is there to notice.
    const auto behind = std::find_if(script_.begin(), script_.end(), [](const Fault& one) {
      return one.kind == RankFault::kBehind;
    });
    if (fault.kind == RankFault::kBehind && behind != script_.end()) {
      fault.rank = behind->rank;
    }
    script_.push_back(fault);
  }
}

RankRun RankSimulation::Run() {
  Draw();
  Load();
  DrawFaults();
  Tell(absl::StrCat(shares_.size(), " ranks of shares ", absl::StrJoin(shares_, ":"), ", ",
                    sequences_.size(), " sequences"));
  fibers_.Start([this] { Lead(); });
  uint64_t before = network_.moves();
  while (fibers_.Round()) {
    Strike();
    if (network_.moves() == before) {
      Advance();
    }
    before = network_.moves();
    if (clock_.Now() > kMost) {
      // Fibers cannot be left: what hangs is a check that fails.
      Find("a rank waits without an end");
      std::fprintf(stderr, "a rank waits without an end\n");
      std::abort();
    }
  }
  return std::move(run_);
}

// Nobody has anything to do now.
void RankSimulation::Advance() {
  TimePoint next = clock_.Now() + kTick;
  if (const auto event = network_.NextEvent()) {
    next = std::min(next, *event);
  }
  for (const TimePoint wake : wakes_) {
    if (wake > clock_.Now()) {
      next = std::min(next, wake);
    }
  }
  clock_.Set(next);
}

void RankSimulation::Sleep(nanoseconds time) {
  const TimePoint until = clock_.Now() + time;
  wakes_.push_back(until);
  while (clock_.Now() < until) {
    fibers_.Pause();
  }
  wakes_.erase(std::find(wakes_.begin(), wakes_.end(), until));
}

void RankSimulation::Lead() {
  {
    LeaderShard leader(std::move(faulty_[0]), times_,
                       [this](uint64_t epoch) { return Join(epoch); });
    LeadSteps(&leader);
    leader.End("the model is unloaded");
  }
  // Who is not told, since it stalls or is gone, ends by itself.
  const TimePoint most = clock_.Now() + kTimeout + kSilence + milliseconds(120'000);
  for (uint32_t rank = 1; rank < followers_.size(); ++rank) {
    while (followers_[rank].running && clock_.Now() < most) {
      Sleep(milliseconds(100));
    }
    if (followers_[rank].running) {
      Find(absl::StrCat("rank ", rank, " goes on though its leader has ended"));
      followers_[rank].follower->Stop(absl::CancelledError("the simulation ends"));
    } else if (!followers_[rank].ended.ok() && !Explained()) {
      Find(absl::StrCat("rank ", rank,
                        " failed what no fault explains: ", followers_[rank].ended.ToString()));
    }
  }
}

void RankSimulation::LeadSteps(LeaderShard* leader) {
  while (!run_.finding && std::any_of(sequences_.begin(), sequences_.end(),
                                      [](const RankedSequence& one) { return one.left > 0; })) {
    // As a fence does: ranks that are not joined are.
    const TimePoint began = clock_.Now();
    const absl::Status joined = leader->BeginEpoch(++epoch_);
    if (!joined.ok()) {
      Find("ranks do not join: " + joined.ToString());
      return;
    }
    const bool lost = leader->TakeKvLost();
    for (RankedSequence& sequence : sequences_) {
      sequence.computed = lost ? 0 : sequence.computed;
    }
    Step(leader);
    if (clock_.Now() - began > 20 * kMostOfACall) {
      Find("a step lasted without a bound");
    }
    if (random_.OneIn(4)) {
      Sleep(milliseconds(random_.Between(1, 3'000)));
    }
  }
}

void RankSimulation::Step(LeaderShard* leader) {
  ++step_;
  for (Fault& fault : script_) {
    if (fault.step != step_) {
      continue;
    }
    if (fault.kind == RankFault::kSilence) {
      ++run_.counts.struck[static_cast<size_t>(fault.kind)];
      Tell("FAULT: the leader is silent for a minute");
      for (int second = 0; second < 60; ++second) {
        Sleep(milliseconds(1'000));
        leader->Beat();
      }
    } else {
      fault.armed = true;
      fault.strikes_at = network_.moves() + fault.moves;
    }
  }
  const std::vector<RankedItem> items = DrawStep();
  const TimePoint began = clock_.Now();
  const absl::StatusOr<std::vector<float>> logits =
      ComputeStep(leader, model_->stage.spec, sequences_, items);
  // Each of its calls is bounded, and none is made behind one that failed.
  const uint64_t calls = 2 * model_->stage.spec.model.layers.size() + 6;
  if (clock_.Now() - began > static_cast<int64_t>(calls) * kMostOfACall) {
    Find("a step lasted without a bound");
  }
  if (!logits.ok()) {
    CheckBroken(logits.status());
    ++run_.counts.broken;
    return;
  }
  ++run_.counts.steps;
  Compare(items, *logits);
}

void RankSimulation::CheckBroken(const absl::Status& status) {
  Tell("the step failed: " + std::string(status.message()));
  if (status.code() != absl::StatusCode::kUnavailable || ReasonOf(status) != kRanksBroken) {
    Find("a step failed by another error: " + status.ToString());
  } else if (!Explained()) {
    Find("a step failed, and no fault explains it: " + status.ToString());
  }
}

bool RankSimulation::Explained() {
  struck_ = network_.TakeDamaged() || struck_;
  return struck_ || std::any_of(faults_.begin(), faults_.end(),
                                [](const RankFaults& one) { return one.failed || one.was_behind; });
}

std::vector<RankedItem> RankSimulation::DrawStep() {
  std::vector<RankedItem> items;
  uint32_t rows = 0;
  const StageSpec& spec = model_->stage.spec;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const RankedSequence& sequence = sequences_[i];
    const auto left = static_cast<uint32_t>(sequence.ids.size()) - sequence.computed;
    const uint32_t room = std::min(left, spec.max_batch_tokens - rows);
    if (sequence.left == 0 || room == 0 || random_.OneIn(4)) {
      continue;
    }
    const uint32_t count = random_.Between(1, room);
    items.push_back({i, sequence.computed, count});
    rows += count;
  }
  return items.empty() ? DrawStep() : items;
}

void RankSimulation::Compare(const std::vector<RankedItem>& items,
                             const std::vector<float>& logits) {
  const absl::StatusOr<std::vector<float>> alone =
      ComputeStep(alone_.get(), model_->stage.spec, sequences_, items);
  STRATA_CHECK(alone.ok());
  if (logits != *alone) {
    Find("ranks computed other bits than one alone");
    return;
  }
  const size_t vocab = model_->stage.spec.model.vocab;
  for (size_t i = 0; i < items.size(); ++i) {
    RankedSequence& sequence = sequences_[items[i].sequence];
    sequence.computed += items[i].rows;
    if (sequence.computed == sequence.ids.size() && --sequence.left > 0) {
      const auto row = logits.begin() + static_cast<ptrdiff_t>(i * vocab);
      sequence.ids.push_back(
          static_cast<uint32_t>(std::max_element(row, row + static_cast<ptrdiff_t>(vocab)) - row));
    }
  }
}

// As a worker that is asked to join (RankSeat): the epoch before ends first.
absl::StatusOr<RankChannels> RankSimulation::Join(uint64_t epoch) {
  for (uint32_t rank = 1; rank < followers_.size(); ++rank) {
    EndFollower(rank);
  }
  ++run_.counts.joined;
  // What broke the epoch before does not break this one, but for who stalls still.
  (void)network_.TakeDamaged();
  for (RankFaults& one : faults_) {
    one.failed = one.was_behind = false;
  }
  struck_ = network_.stalls();
  Tell(absl::StrCat("ranks join in epoch ", epoch));
  const auto ranks = static_cast<uint32_t>(followers_.size());
  std::vector<RankChannels> channels(ranks);
  for (RankChannels& one : channels) {
    one.epoch = epoch;
    one.gathers.resize(ranks);
  }
  channels[0].calls.resize(ranks);
  for (uint32_t one = 0; one < ranks; ++one) {
    for (uint32_t other = one + 1; other < ranks; ++other) {
      RankNetwork::Ends ends = network_.Connect(one, other);
      channels[one].gathers[other] = std::move(ends.one);
      channels[other].gathers[one] = std::move(ends.other);
    }
  }
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    RankNetwork::Ends ends = network_.Connect(0, rank);
    channels[0].calls[rank] = std::move(ends.one);
    channels[rank].calls.push_back(std::move(ends.other));
    Follower& follower = followers_[rank];
    follower.follower =
        std::make_unique<RankFollower>(faulty_[rank].get(), model_->stage.spec, rank, times_);
    follower.running = true;
    ++follower.number;
    const auto own = std::make_shared<RankChannels>(std::move(channels[rank]));
    fibers_.Start([this, rank, own] {
      Follower& self = followers_[rank];
      self.ended = self.follower->Follow(std::move(*own));
      self.running = false;
      if (!self.ended.ok()) {
        Tell(absl::StrCat("rank ", rank, " ended: ", std::string(self.ended.message())));
      }
    });
  }
  return std::move(channels[0]);
}

void RankSimulation::EndFollower(uint32_t rank) {
  Follower& follower = followers_[rank];
  if (!follower.running) {
    return;
  }
  follower.follower->Stop(absl::CancelledError("the ranks are joined anew"));
  const TimePoint began = clock_.Now();
  while (follower.running && clock_.Now() - began <= kMostToStop) {
    Sleep(milliseconds(10));
  }
  if (follower.running) {
    Find(absl::StrCat("rank ", rank, " did not stop when it was told to"));
    while (follower.running) {
      Sleep(milliseconds(250));
    }
  }
}

void RankSimulation::Strike() {
  for (Fault& fault : script_) {
    if (!fault.armed || network_.moves() < fault.strikes_at) {
      continue;
    }
    fault.armed = false;
    if (StrikeOne(fault)) {
      ++run_.counts.struck[static_cast<size_t>(fault.kind)];
      Tell(absl::StrCat("FAULT: ", NameOf(fault.kind), " of rank ", fault.rank));
    }
  }
}

bool RankSimulation::StrikeOne(const Fault& fault) {
  switch (fault.kind) {
    case RankFault::kKill:
      struck_ = true;
      network_.Kill(fault.rank);
      return true;
    case RankFault::kStall:
      // One that is shorter than others wait may not break anything.
      struck_ = struck_ || fault.time * 3 > kTimeout;
      network_.Stall(fault.rank, fault.time);
      return true;
    case RankFault::kDamage:
      network_.Damage(fault.rank);
      return true;
    case RankFault::kFail:
      faults_[fault.rank].fails_in = static_cast<uint32_t>(fault.moves % 5);
      return true;
    case RankFault::kBehind:
      faults_[fault.rank].behind_in = static_cast<uint32_t>(fault.moves % 7);
      return true;
    case RankFault::kStop:
      if (!followers_[fault.rank].running) {
        return false;
      }
      struck_ = true;
      followers_[fault.rank].follower->Stop(absl::CancelledError("the stage is unloaded"));
      fibers_.Start([this, rank = fault.rank, told = followers_[fault.rank].number] {
        const TimePoint began = clock_.Now();
        const auto runs = [&] {
          return followers_[rank].running && followers_[rank].number == told;
        };
        while (runs() && clock_.Now() - began <= kMostToStop) {
          Sleep(milliseconds(10));
        }
        if (runs()) {
          Find(absl::StrCat("rank ", rank, " did not stop when it was told to"));
        }
      });
      return true;
    case RankFault::kSilence:
      return false;
  }
  return false;
}

}  // namespace

const char* NameOf(RankFault fault) {
  static constexpr std::array<const char*, kRankFaults> names = {
      "kill", "stall", "damage", "fail", "behind", "stop", "silence"};
  return names[static_cast<size_t>(fault)];
}

RankRun SimulateRanks(uint64_t seed, const std::function<void(const std::string&)>& tell) {
  return RankSimulation(seed, tell).Run();
}

}  // namespace strata::sim
