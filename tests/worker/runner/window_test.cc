// KV groups: pages behind a window are freed when the length is committed, and not before.
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kWindow = 20;

class Window : public ::testing::Test {
 protected:
  Window()
      : chain_({.model = HashModel(4, {{KvKind::kFull, 0}, {KvKind::kWindow, kWindow}}),
                .stages = 2,
                .pages = {32, 32}}),
        steps_(&chain_) {}

  Chain chain_;
  Steps steps_;
  const v1::SequenceName a_ = Name("a", 1);
  const std::vector<uint32_t> ids_ = Prompt(100, 1);
};

TEST_F(Window, TokensAreThoseOfTheOracle) {
  const auto prompt = Prompt(50, 2);
  EXPECT_EQ(Generate(&steps_, Name("g", 1), prompt, 13, 60),
            ExpectedTokens(chain_.options().model, prompt, 60));
}

TEST_F(Window, PagesAreFreedBehindTheCommittedLengthOnly) {
  steps_.set_commits(false);
  ResultMessage result = steps_.Run({Item(a_, ids_, 0, 64)});
  result = steps_.Run({Item(a_, ids_, 64, 65)});
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 5);
  // Step 1 is committed: 64 tokens, so that keys from position 45 on, page 2, are needed.
  StepMessage frame = steps_.Frame({});
  frame.header.set_committed_step(1);
  result = steps_.Send(frame);
  EXPECT_EQ(FreePages(result, 0, 0), 32u - 5);
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 3);
  steps_.set_commits(true);
  result = steps_.Run({Item(a_, ids_, 65, 99)});
  EXPECT_EQ(TokenOf(result), Argmax(HashLogits(chain_.options().model, ids_)[98]));
  // 99 tokens committed: page 5 (from 80) is the first one.
  result = steps_.Run({Item(a_, ids_, 99, 100)});
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 2);
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain_.options().model, ids_, 1)[0]);
}

TEST_F(Window, ForkAndTruncateNeedTheirWindowToBeHeld) {
  steps_.Run({Item(a_, ids_, 0, 80)});
  ResultMessage result = steps_.Run({});  // Commits 80: the first position kept is 48.
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 2);
  // A length of 66 sees keys from 47 on, one of 67 from 48 on.
  for (const v1::StepCommand& command : {Truncate(a_, std::span(ids_).first(66)),
                                         Fork(a_, Name("b", 2), std::span(ids_).first(66))}) {
    result = steps_.Run({}, {command});
    EXPECT_EQ(ReasonOfCommand(result), "WINDOW_NOT_RETAINED");
    EXPECT_EQ(result.header.commands(0).error().facts().at("first_retained"), "48");
    EXPECT_EQ(result.header.commands(0).error().code(),
              static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  }
  auto branch = std::vector<uint32_t>(ids_.begin(), ids_.begin() + 67);
  branch.push_back(5);
  result = steps_.Run({Item(Name("b", 2), branch, 67, 68)},
                      {Fork(a_, Name("b", 2), std::span(ids_).first(67))});
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain_.options().model, branch, 1)[0]);
  result = steps_.Run({Item(a_, branch, 67, 68)}, {Truncate(a_, std::span(ids_).first(67))});
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain_.options().model, branch, 1)[0]);
}

TEST_F(Window, ATruncationBeforeItsCommitDoesNotFreeByTheOldLength) {
  steps_.set_commits(false);
  steps_.Run({Item(a_, ids_, 0, 80)});                        // Step 1.
  steps_.Run({}, {Truncate(a_, std::span(ids_).first(30))});  // Step 2.
  StepMessage frame = steps_.Frame({});
  frame.header.set_committed_step(1);  // Says 80 tokens, but only 30 of them are held now.
  steps_.Send(frame);
  auto branch = std::vector<uint32_t>(ids_.begin(), ids_.begin() + 30);
  branch.push_back(5);
  EXPECT_EQ(TokenOf(steps_.Run({Item(a_, branch, 30, 31)})),
            ExpectedTokens(chain_.options().model, branch, 1)[0]);
}

TEST_F(Window, SharedWindowPagesAreFreedByTheirLastHolder) {
  steps_.Run({Item(a_, ids_, 0, 32)});
  steps_.Run({}, {Fork(a_, Name("b", 2), std::span(ids_).first(32))});
  steps_.Run({Item(a_, ids_, 32, 80)});
  ResultMessage result = steps_.Run({});
  // a holds pages 3 and 4; b pages 0 and 1 still.
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 4);
  result = steps_.Run({}, {Release(Name("b", 2))});
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 2);
  result = steps_.Run({}, {Release(a_)});
  EXPECT_EQ(FreePages(result, 0, 1), 32u);
  EXPECT_EQ(FreePages(result, 1, 0), 32u);
}

TEST_F(Window, AResyncCommitsWhatItNames) {
  steps_.set_commits(false);
  steps_.Run({Item(a_, ids_, 0, 90)});
  ResultMessage result = steps_.Resync(kEpoch + 1, {Truncate(a_, std::span(ids_).first(80))});
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 2);
  EXPECT_EQ(TokenOf(steps_.Run({Item(a_, ids_, 80, 100)})),
            ExpectedTokens(chain_.options().model, ids_, 1)[0]);
  // The old epoch's steps say nothing about this one's: nothing more is committed.
  StepMessage frame = steps_.Frame({});
  frame.header.set_committed_step(1);
  result = steps_.Send(frame);
  EXPECT_EQ(FreePages(result, 0, 1), 32u - 4);
}

// A stage whose layers are all of one group holds no pages of the other.
TEST(WindowGroups, AStageWithoutAGroupsLayersNeedsNoPagesOfIt) {
  Chain chain({.model = HashModel(2, {{KvKind::kFull, 0}, {KvKind::kWindow, kWindow}}),
               .stages = 2,
               .pages = {8, 8}});
  Steps steps(&chain);
  const auto ids = Prompt(40, 1);
  const ResultMessage result = steps.Run({Item(Name("a", 1), ids, 0, 40)});
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain.options().model, ids, 1)[0]);
  EXPECT_EQ(FreePages(result, 0, 0), 5u);
  EXPECT_EQ(FreePages(result, 0, 1), 8u);
  EXPECT_EQ(FreePages(result, 1, 0), 8u);
  EXPECT_EQ(FreePages(result, 1, 1), 5u);
}

}  // namespace
}  // namespace strata
