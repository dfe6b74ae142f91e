// Frames: their order within an epoch, epochs and fences, and frames that are wrong as a whole.
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

using Output = ShardRunner::Output;

bool IsDiscarded(const absl::StatusOr<Output>& output) {
  return output.ok() && std::holds_alternative<ShardRunner::Discarded>(*output);
}

class StepOrder : public ::testing::Test {
 protected:
  // The next token of the one sequence, which tells whether its state is what it should be.
  void ExpectIntact() {
    const auto want = ExpectedTokens(chain_.options().model, ids_, 1)[0];
    const auto end = static_cast<uint32_t>(ids_.size());
    EXPECT_EQ(TokenOf(steps_.Run({Item(name_, ids_, held_, end)})), want);
    held_ = end;
    ids_.push_back(want);
  }

  Chain chain_;
  Steps steps_{&chain_};
  v1::SequenceName name_ = Name("a", 1);
  std::vector<uint32_t> ids_ = Prompt(20, 1);
  uint32_t held_ = 0;
};

TEST_F(StepOrder, ADuplicateIsDiscardedWholeBeforeItsCommands) {
  ExpectIntact();
  const auto end = static_cast<uint32_t>(ids_.size());
  const StepMessage frame = steps_.Frame({Item(name_, ids_, held_, end)});
  const uint32_t token = TokenOf(steps_.Send(frame));
  held_ = end;
  ids_.push_back(token);
  StepMessage again = frame;
  *again.header.add_commands() = Release(name_);
  EXPECT_TRUE(IsDiscarded(chain_.runner(0).Step(again)));
  EXPECT_TRUE(IsDiscarded(chain_.runner(0).Step(frame)));
  EXPECT_EQ(chain_.runner(0).stats().frames_discarded, 2u);
  EXPECT_EQ(chain_.runner(0).stats().frames_computed, 2u);
  ExpectIntact();
}

TEST_F(StepOrder, AGapBreaksTheLinkAndChangesNothing) {
  ExpectIntact();
  StepMessage frame = steps_.Frame({}, {Release(name_)});
  frame.header.set_step(frame.header.step() + 1);
  const auto output = chain_.runner(0).Step(frame);
  EXPECT_EQ(ReasonOf(output.status()), "STEP_GAP");
  EXPECT_EQ(DetailOf(output.status()).node(), "node0");
  EXPECT_EQ(DetailOf(output.status()).facts().at("last_step"), "1");
  EXPECT_EQ(chain_.runner(0).stats().sequences, 1u);
}

TEST_F(StepOrder, AStepBeforeTheGapIsStillTaken) {
  ExpectIntact();
  StepMessage frame = steps_.Frame({});
  StepMessage ahead = frame;
  ahead.header.set_step(frame.header.step() + 1);
  EXPECT_FALSE(chain_.runner(0).Step(ahead).ok());
  steps_.Send(frame);
  ExpectIntact();
}

TEST_F(StepOrder, FramesOfOlderEpochsAreDiscarded) {
  ExpectIntact();
  StepMessage late = steps_.Frame({}, {Release(name_)});
  steps_.Resync(kEpoch + 1, {Truncate(name_, std::span(ids_).first(held_))});
  EXPECT_TRUE(IsDiscarded(chain_.runner(0).Step(late)));
  EXPECT_EQ(chain_.runner(0).stats().frames_discarded, 1u);
  ExpectIntact();
}

TEST_F(StepOrder, FramesOfNewerEpochsAreNeverComputedAndReported) {
  ExpectIntact();
  StepMessage early = steps_.Frame({}, {Release(name_)});
  early.header.set_epoch(kEpoch + 1);
  early.header.set_step(1);
  early.header.set_committed_step(0);
  early.header.set_resync(true);
  const auto output = chain_.runner(0).Step(early);
  EXPECT_EQ(output.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(output.status()), "EPOCH_NOT_LOADED");
  early.header.set_epoch(kEpoch);
  early.header.set_step(2);
  early.header.clear_resync();
  early.header.clear_commands();
  steps_.Send(early);
  ExpectIntact();
}

TEST_F(StepOrder, FencesOnlyGoForward) {
  EXPECT_TRUE(chain_.runner(0).Fence(kEpoch).ok());
  ExpectIntact();
  EXPECT_TRUE(chain_.runner(0).Fence(kEpoch).ok());  // Again: nothing happens.
  ExpectIntact();
  EXPECT_EQ(ReasonOf(chain_.runner(0).Fence(kEpoch - 1)), "EPOCH_OLD");
  ExpectIntact();
}

TEST_F(StepOrder, TheFirstFrameAfterAFenceMustResynchronizeAndNoOther) {
  ExpectIntact();
  StepMessage misplaced = steps_.Frame({});
  misplaced.header.set_resync(true);
  EXPECT_EQ(ReasonOf(chain_.runner(0).Step(misplaced).status()), "RESYNC_MISPLACED");
  chain_.Fence(kEpoch + 1);
  Steps next(&chain_, kEpoch + 1);
  EXPECT_EQ(ReasonOf(chain_.runner(0).Step(next.Frame({})).status()), "RESYNC_MISPLACED");
  steps_.Resync(kEpoch + 2, {Truncate(name_, std::span(ids_).first(held_))});
  ExpectIntact();
}

TEST_F(StepOrder, ResyncTruncatesWhatItNamesAndReleasesTheRest) {
  ExpectIntact();
  const auto other = Prompt(40, 2);
  steps_.Run({Item(Name("b", 2), other, 0, 40), Item(Name("c", 3), other, 0, 40)});
  // Steps that were never committed: longer by some, which the coordinator forgets.
  const std::vector<uint32_t> committed = ids_;
  const uint32_t held = held_;
  ExpectIntact();
  ExpectIntact();
  const ResultMessage result =
      steps_.Resync(kEpoch + 1, {Truncate(name_, std::span(committed).first(held)),
                                 Truncate(Name("b", 2), std::span(other).first(21)),
                                 Truncate(Name("d", 4), std::span(other).first(3))});
  EXPECT_EQ(ReasonOfCommand(result, 0), "");
  EXPECT_EQ(ReasonOfCommand(result, 1), "");
  EXPECT_EQ(ReasonOfCommand(result, 2), "SEQUENCE_NOT_FOUND");
  EXPECT_EQ(FreePages(result), 64u - 2 - 2);  // c is gone.
  EXPECT_EQ(chain_.runner(0).stats().sequences, 2u);
  ids_ = committed;
  held_ = held;
  ExpectIntact();
  const auto end = static_cast<uint32_t>(other.size());
  EXPECT_EQ(TokenOf(steps_.Run({Item(Name("b", 2), other, 21, end)})),
            ExpectedTokens(chain_.options().model, other, 1)[0]);
}

TEST_F(StepOrder, AResyncThatDoesNotMatchIsReportedAndTheSequenceStays) {
  ExpectIntact();
  auto wrong = ids_;
  wrong[3] ^= 1;
  const ResultMessage result =
      steps_.Resync(kEpoch + 1, {Truncate(name_, std::span(wrong).first(held_))});
  EXPECT_EQ(ReasonOfCommand(result), "FINGERPRINT_MISMATCH");
  EXPECT_EQ(ReasonOfCommand(steps_.Run({}, {Release(name_)})), "");
}

TEST_F(StepOrder, ALapsedLeaseDropsEverySequenceButNotTheNewestGeneration) {
  ExpectIntact();
  chain_.runner(0).DropAllSequences();
  EXPECT_EQ(chain_.runner(0).stats().sequences, 0u);
  const auto end = static_cast<uint32_t>(ids_.size());
  ResultMessage result = steps_.Run({Item(name_, ids_, held_, end)});
  EXPECT_EQ(ReasonOfItem(result), "SEQUENCE_NOT_FOUND");
  EXPECT_EQ(FreePages(result), 64u);
  EXPECT_EQ(ReasonOfItem(steps_.Run({Item(name_, ids_, 0, end)})), "STALE_GENERATION");
  EXPECT_EQ(TokenOf(steps_.Run({Item(Name("a", 2), ids_, 0, end)})),
            ExpectedTokens(chain_.options().model, ids_, 1)[0]);
}

// Each wrong frame is refused with its reason, and the state is as before.
TEST_F(StepOrder, FramesOfTheWrongShapeBreakTheLink) {
  ExpectIntact();
  const auto end = static_cast<uint32_t>(ids_.size());
  const StepMessage good = steps_.Frame({Item(name_, ids_, held_, end)});
  auto refuse = [&](const char* reason, const std::function<void(StepMessage*)>& change) {
    StepMessage bad = good;
    change(&bad);
    EXPECT_EQ(ReasonOf(chain_.runner(0).Step(bad).status()), reason);
  };
  refuse("WRONG_DEPLOYMENT", [](StepMessage* m) { m->header.set_deployment(8); });
  refuse("FRAME_STAGES", [](StepMessage* m) { m->header.add_stages(); });
  refuse("FRAME_COMMITTED", [](StepMessage* m) { m->header.set_committed_step(2); });
  refuse("FRAME_ROWS", [](StepMessage* m) { m->header.set_rows(2); });
  refuse("FRAME_PAYLOAD", [](StepMessage* m) { m->payload.resize(kHashHidden); });
  refuse("FRAME_LIMIT", [](StepMessage* m) {
    for (int i = 0; i < 16; ++i) {
      *m->header.add_items() = m->header.items(0);
    }
    m->header.set_rows(17);
  });
  refuse("FRAME_LIMIT", [](StepMessage* m) {
    for (int i = 0; i < 256; ++i) {
      m->header.mutable_items(0)->add_token_ids(1);
    }
    m->header.set_rows(257);
  });
  refuse("FRAME_LIMIT", [](StepMessage* m) {
    for (int i = 0; i <= 1 << 16; ++i) {
      m->header.add_commands()->mutable_release();
    }
  });
  ids_.push_back(TokenOf(steps_.Send(good)));
  held_ = end;
  ExpectIntact();
}

TEST(StepOrderOfStages, LaterStagesCheckThePayloadAndWhoHasSeenTheFrame) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const auto ids = Prompt(5, 1);
  auto first = chain.runner(0).Step(steps.Frame({Item(Name("a", 1), ids, 0, 5)}));
  ASSERT_TRUE(first.ok());
  const StepMessage good = std::get<StepMessage>(*first);
  EXPECT_EQ(good.payload.size(), 5u * kHashHidden);
  StepMessage bad = good;
  bad.payload.pop_back();
  EXPECT_EQ(ReasonOf(chain.runner(1).Step(bad).status()), "FRAME_PAYLOAD");
  bad = good;
  bad.header.clear_stages();
  EXPECT_EQ(ReasonOf(chain.runner(1).Step(bad).status()), "FRAME_STAGES");
  bad = good;
  bad.header.mutable_stages(0)->set_stage(1);
  EXPECT_EQ(ReasonOf(chain.runner(1).Step(bad).status()), "FRAME_STAGES");
  auto second = chain.runner(1).Step(good);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(TokenOf(std::get<ResultMessage>(*second)),
            ExpectedTokens(chain.options().model, ids, 1)[0]);
}

}  // namespace
}  // namespace strata
