// A draft model beside the engine: what is asked of it, and what its answers are worth.
#include "coordinator/engine/draft_model.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

constexpr uint32_t kVocab = 97;

// Costs of a step whose rows are nearly free.
double Cheap(uint32_t rows) { return 10 + 0.1 * rows; }

TEST(GuessPace, AFewAreAskedForAsLongAsNothingIsKnown) {
  const GuessPace pace;
  EXPECT_EQ(pace.Worth(0.6, 15, Cheap), 4u);
  EXPECT_EQ(pace.Worth(0.6, 2, Cheap), 2u);
}

TEST(GuessPace, TheMoreAreAskedForTheLikelierAndCheaperTheyAre) {
  GuessPace cheap;
  cheap.Observe(4, milliseconds(4));
  uint32_t before = 0;
  for (const double chance : {0.0, 0.3, 0.6, 0.8, 0.95, 1.0}) {
    const uint32_t worth = cheap.Worth(chance, 15, Cheap);
    EXPECT_GE(worth, before) << chance;
    before = worth;
  }
  EXPECT_EQ(cheap.Worth(0, 15, Cheap), 0u);
  EXPECT_EQ(before, 15u);
  GuessPace dear;
  dear.Observe(4, milliseconds(80));  // Each takes longer than the step that it might save.
  EXPECT_EQ(dear.Worth(0.7, 15, Cheap), 0u);
}

// Where rows cost as much as tokens, as where many clients share a step, nothing is asked for.
TEST(GuessPace, NoneAreAskedForWhereRowsAreDear) {
  GuessPace pace;
  pace.Observe(4, milliseconds(1));
  EXPECT_EQ(pace.Worth(0.7, 15, [](uint32_t rows) { return 10.0 * (1 + rows); }), 0u);
}

TEST(GuessPace, AModelThatFailedIsLeftAloneForASecond) {
  GuessPace pace;
  const TimePoint now = std::chrono::seconds(5);
  EXPECT_TRUE(pace.may_ask(now));
  pace.NoteNone(now);
  EXPECT_FALSE(pace.may_ask(now + milliseconds(999)));
  EXPECT_TRUE(pace.may_ask(now + std::chrono::seconds(1)));
}

TEST(SessionGuesses, AreAskedForOnceForEachNumberOfTokens) {
  SessionGuesses guesses(true);
  const TimePoint now = std::chrono::seconds(5);
  EXPECT_TRUE(guesses.MayAsk(10));
  guesses.Asked(10, 4, now, now + milliseconds(3));
  EXPECT_FALSE(guesses.MayAsk(10));
  EXPECT_FALSE(guesses.MayAsk(11)) << "the answer is outstanding";
  EXPECT_EQ(guesses.AwaitedUntil(10, now), now + milliseconds(3));
  EXPECT_EQ(guesses.AwaitedUntil(11, now), std::nullopt);
  EXPECT_EQ(guesses.AwaitedUntil(10, now + milliseconds(3)), std::nullopt);
  EXPECT_EQ(guesses.Answered(), std::pair(4u, now));
  EXPECT_EQ(guesses.Answered(), std::nullopt);
  EXPECT_FALSE(guesses.MayAsk(10));
  EXPECT_TRUE(guesses.MayAsk(11));
  EXPECT_FALSE(SessionGuesses().MayAsk(10));
}

// Whether the guesses come, and what they say.
enum class Guesser { kRight, kWrong, kLate, kFails, kRefuses, kNonsense };

// Answers when told to.
class GuessingCluster : public SimCluster {
 public:
  GuessingCluster(const EngineConfig& config, Guesser guesser)
      : SimCluster(config), guesser_(guesser) {}

  bool AskDraftModel(GuessRequest request) override {
    asked.push_back(request);
    if (guesser_ == Guesser::kRefuses) {
      return false;
    }
    pending_.push_back(std::move(request));
    return true;
  }
  bool AnswerOne() {
    if (pending_.empty() || guesser_ == Guesser::kLate) {
      return false;
    }
    const GuessRequest request = std::move(pending_.front());
    pending_.pop_front();
    std::vector<uint32_t> guesses;
    if (guesser_ != Guesser::kFails) {
      guesses = OracleAnswer(request.tokens, request.most, kVocab);
    }
    for (uint32_t& guess : guesses) {
      guess = guesser_ == Guesser::kWrong      ? (guess + 1) % kVocab
              : guesser_ == Guesser::kNonsense ? guess + 1000
                                               : guess;
    }
    PassTime(milliseconds(1));
    engine().OnGuesses(request.key, static_cast<uint32_t>(request.tokens.size()),
                       std::move(guesses), now());
    return true;
  }
  // Until no session is left, guesses coming before steps.
  void Run() {
    for (int i = 0; i < 10000 && engine().live_sessions() > 0; ++i) {
      bool moved = AcknowledgeFence();
      while (AnswerOne()) {
        moved = true;
      }
      for (uint32_t stage = 0; stage <= stage_count(); ++stage) {
        moved = Deliver(stage) || moved;
      }
      if (const auto wake = engine().NextWake(); !moved && wake.has_value() && *wake > now()) {
        Advance(*wake - now());
      }
    }
    EXPECT_EQ(engine().live_sessions(), 0u);
  }

  std::vector<GuessRequest> asked;

 private:
  const Guesser guesser_;
  std::deque<GuessRequest> pending_;
};

EngineConfig Config(uint32_t stages) {
  EngineConfig config = MakeConfig(stages);
  config.speculate = Speculate::kAuto;
  config.draft_model = true;
  return config;
}

TEST(EngineDraftModel, ChangesNoTokenWhateverBecomesOfItsGuesses) {
  for (const Guesser guesser : {Guesser::kRight, Guesser::kWrong, Guesser::kLate, Guesser::kFails,
                                Guesser::kRefuses, Guesser::kNonsense}) {
    for (uint32_t stages = 1; stages <= 3; ++stages) {
      GuessingCluster cluster(Config(stages), guesser);
      cluster.Start();
      const SessionRequest request = MakeRequest("r", 40, 60);
      const SessionRequest other = MakeRequest("s", 7, 30);
      const auto sink = cluster.Submit(request);
      const auto second = cluster.Submit(other);
      cluster.Run();
      cluster.Settle();
      EXPECT_EQ(sink->tokens, OracleAnswer(request.prompt, 60, kVocab));
      EXPECT_EQ(second->tokens, OracleAnswer(other.prompt, 30, kVocab));
      cluster.ExpectEmpty();
      ASSERT_FALSE(cluster.asked.empty());
      EXPECT_EQ(cluster.asked[0].tokens, request.prompt);
      EXPECT_EQ(cluster.asked[0].most, 1u);
      const EngineCounters counters = cluster.Snapshot().counters;
      EXPECT_EQ(counters.faults + counters.item_errors, 0u);
      if (guesser == Guesser::kRight) {
        EXPECT_GT(counters.drafts_accepted, 30u);
        EXPECT_LT(sink->done->steps, 40u);
      } else {
        EXPECT_EQ(sink->done->accepted_tokens, 0u);
      }
    }
  }
}

// One that does not answer costs a wait for the first token of each session, not for each token.
TEST(EngineDraftModel, IsNotWaitedForTwiceWhereItIsLate) {
  GuessingCluster cluster(Config(1), Guesser::kLate);
  cluster.Start();
  const auto sink = cluster.Submit(MakeRequest("r", 40, 60));
  const TimePoint begin = cluster.now();
  cluster.Run();
  EXPECT_LT(cluster.now() - begin, milliseconds(300));
  EXPECT_LE(cluster.asked.size(), 2u);
}

TEST(EngineDraftModel, IsAskedNothingForWhoWantsNone) {
  GuessingCluster cluster(Config(2), Guesser::kRight);
  cluster.Start();
  for (const Speculate by : {Speculate::kOff, Speculate::kLookup}) {
    SessionRequest request = MakeRequest("r", 20, 30);
    request.speculate = by;
    const auto sink = cluster.Submit(request);
    cluster.Run();
    EXPECT_EQ(sink->tokens, OracleAnswer(request.prompt, 30, kVocab));
  }
  EXPECT_TRUE(cluster.asked.empty());
}

}  // namespace
}  // namespace strata
