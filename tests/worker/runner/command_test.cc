// Fork, Truncate and Release: what they keep, copy and free, and that a mismatch changes nothing.
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

class Command : public ::testing::TestWithParam<uint32_t> {
 protected:
  Command() : chain_({.stages = GetParam()}), steps_(&chain_) {
    steps_.Run({Item(a_, ids_, 0, 40)});
  }

  // Appends the last of `ids` to a sequence that holds those before, and checks the token after.
  ResultMessage ExpectNext(const v1::SequenceName& name, const std::vector<uint32_t>& ids) {
    const auto end = static_cast<uint32_t>(ids.size());
    const ResultMessage result = steps_.Run({Item(name, ids, end - 1, end)});
    EXPECT_EQ(TokenOf(result), ExpectedTokens(chain_.options().model, ids, 1)[0]);
    return result;
  }

  // `command` is refused with this reason by stage 0, on every stage nothing changes.
  v1::ErrorDetail ExpectRefused(const v1::StepCommand& command, const std::string& reason) {
    const ResultMessage before = steps_.Run({});
    const ResultMessage result = steps_.Run({}, {command});
    EXPECT_EQ(ReasonOfCommand(result), reason);
    EXPECT_EQ(result.header.commands(0).error_stage(), 0u);
    for (uint32_t s = 0; s < GetParam(); ++s) {
      EXPECT_EQ(FreePages(result, static_cast<int>(s)), FreePages(before, static_cast<int>(s)));
    }
    return result.header.commands(0).error();
  }

  std::vector<uint32_t> First(uint32_t length) const {
    return {ids_.begin(), ids_.begin() + length};
  }
  std::vector<uint32_t> FirstAnd(uint32_t length, std::vector<uint32_t> more) const {
    std::vector<uint32_t> ids = First(length);
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }

  Chain chain_;
  Steps steps_;
  const v1::SequenceName a_ = Name("a", 1);
  const v1::SequenceName b_ = Name("b", 2);
  const std::vector<uint32_t> ids_ = Prompt(40, 1);
};

INSTANTIATE_TEST_SUITE_P(Stages, Command, ::testing::Values(1, 3));

TEST_P(Command, AForkBeginsWithTheSourcesTokensAndNeitherSeesTheOther) {
  for (const uint32_t length : {0u, 1u, 15u, 16u, 17u, 39u, 40u}) {
    const v1::SequenceName fork = Name("fork", 10 + length);
    const auto ids = FirstAnd(length, {3, 1, 4});
    const ResultMessage result =
        steps_.Run({Item(fork, ids, length, length + 3)}, {Fork(a_, fork, First(length))});
    EXPECT_EQ(ReasonOfCommand(result), "");
    EXPECT_EQ(TokenOf(result), ExpectedTokens(chain_.options().model, ids, 1)[0]) << length;
  }
  ExpectNext(a_, FirstAnd(40, {7}));
}

TEST_P(Command, ASharedPartialPageIsCopiedAtTheFirstWriteAndOnlyOnce) {
  // 40 tokens: two full pages and a partial one.
  ResultMessage result = steps_.Run({}, {Fork(a_, b_, ids_)});
  EXPECT_EQ(FreePages(result), 64u - 3);
  EXPECT_EQ(chain_.shard(0).pages_copied(), 0u);
  result = ExpectNext(b_, FirstAnd(40, {5}));
  EXPECT_EQ(FreePages(result), 64u - 4);
  EXPECT_EQ(chain_.shard(0).pages_copied(), 1u);
  result = ExpectNext(b_, FirstAnd(40, {5, 6}));
  ExpectNext(a_, FirstAnd(40, {8}));
  ExpectNext(b_, FirstAnd(40, {5, 6, 7}));
  ExpectNext(a_, FirstAnd(40, {8, 9}));
  EXPECT_EQ(chain_.shard(0).pages_copied(), 1u);
}

TEST_P(Command, TheSourceCopiesTooWhenItWritesFirst) {
  steps_.Run({}, {Fork(a_, b_, ids_)});
  ExpectNext(a_, FirstAnd(40, {8}));
  EXPECT_EQ(chain_.shard(0).pages_copied(), 1u);
  ExpectNext(b_, FirstAnd(40, {5}));
  ExpectNext(a_, FirstAnd(40, {8, 2}));
  EXPECT_EQ(chain_.shard(0).pages_copied(), 1u);
}

TEST_P(Command, AForkAtAPageBoundaryCopiesNothing) {
  steps_.Run({}, {Fork(a_, b_, First(32))});
  ExpectNext(b_, FirstAnd(32, {5}));
  EXPECT_EQ(chain_.shard(0).pages_copied(), 0u);
}

TEST_P(Command, AForkOutlivesItsSourceAndTheLastHolderFreesThePages) {
  steps_.Run({}, {Fork(a_, b_, First(20))});
  ResultMessage result = steps_.Run({}, {Release(a_)});
  EXPECT_EQ(FreePages(result), 64u - 2);
  ExpectNext(b_, FirstAnd(20, {5}));
  // Nobody shares its partial page any more.
  EXPECT_EQ(chain_.shard(0).pages_copied(), 0u);
  result = steps_.Run({}, {Release(b_)});
  for (uint32_t s = 0; s < GetParam(); ++s) {
    EXPECT_EQ(FreePages(result, static_cast<int>(s)), 64u);
  }
}

TEST_P(Command, ForkChecksSourceLengthFingerprintAndDestination) {
  auto wrong = ids_;
  wrong[5] = (wrong[5] + 1) % 97;
  EXPECT_EQ(ExpectRefused(Fork(a_, b_, wrong), "FINGERPRINT_MISMATCH").code(),
            static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  const auto error = ExpectRefused(Fork(a_, b_, FirstAnd(40, {1})), "POSITION_MISMATCH");
  EXPECT_EQ(error.facts().at("length"), "40");
  EXPECT_EQ(error.facts().at("position"), "41");
  ExpectRefused(Fork(Name("x", 1), b_, ids_), "SEQUENCE_NOT_FOUND");
  ExpectRefused(Fork(a_, a_, ids_), "STALE_GENERATION");
  ExpectRefused(Fork(a_, Name("", 9), ids_), "SEQUENCE_NAME");
  v1::StepCommand command = Fork(a_, b_, ids_);
  command.mutable_fork()->clear_params();
  ExpectRefused(command, "SAMPLING_INCOMPLETE");
  command = Fork(a_, b_, ids_);
  command.mutable_fork()->mutable_params()->set_rotary_variant(1);
  ExpectRefused(command, "ROTARY_VARIANT_UNSUPPORTED");
  ExpectRefused(v1::StepCommand(), "UNKNOWN_COMMAND");
  // A fork is a creation.
  steps_.Run({}, {Fork(a_, Name("b", 5), ids_)});
  EXPECT_EQ(ReasonOfItem(steps_.Run({Item(Name("c", 5), ids_, 0, 4)})), "STALE_GENERATION");
}

TEST_P(Command, TruncateDropsTokensAndPages) {
  ResultMessage result = steps_.Run({}, {Truncate(a_, First(17))});
  EXPECT_EQ(ReasonOfCommand(result), "");
  EXPECT_EQ(FreePages(result), 64u - 2);
  ExpectNext(a_, FirstAnd(17, {5}));
  result = steps_.Run({}, {Truncate(a_, First(16))});
  EXPECT_EQ(FreePages(result), 64u - 1);
  ExpectNext(a_, FirstAnd(16, {6}));
  result = steps_.Run({}, {Truncate(a_, {})});
  EXPECT_EQ(FreePages(result), 64u);
  ExpectNext(a_, {9});
}

TEST_P(Command, TruncateOfASharedSequenceLeavesTheOtherWhole) {
  steps_.Run({}, {Fork(a_, b_, ids_), Truncate(a_, First(20))});
  ExpectNext(a_, FirstAnd(20, {5}));
  ExpectNext(b_, FirstAnd(40, {6}));
  // a's page with positions 16 to 19; b's last page is held by nobody else any more.
  EXPECT_EQ(chain_.shard(0).pages_copied(), 1u);
}

TEST_P(Command, TruncateChecksLengthAndFingerprint) {
  ExpectRefused(Truncate(a_, FirstAnd(40, {1})), "POSITION_MISMATCH");
  auto wrong = First(20);
  wrong[19] = (wrong[19] + 1) % 97;
  ExpectRefused(Truncate(a_, wrong), "FINGERPRINT_MISMATCH");
  ExpectRefused(Truncate(Name("a", 2), First(20)), "SEQUENCE_NOT_FOUND");
  ExpectRefused(Release(Name("a", 2)), "SEQUENCE_NOT_FOUND");
  ExpectNext(a_, FirstAnd(40, {1}));
}

TEST_P(Command, CommandsRunInOrderBeforeTheItems) {
  // The page that the release frees is the one that the item takes.
  Chain chain({.stages = GetParam(), .pages = {3}});
  Steps steps(&chain);
  steps.Run({Item(a_, ids_, 0, 40)});
  const ResultMessage result =
      steps.Run({Item(Name("d", 4), First(20), 0, 20)},
                {Truncate(a_, First(10)), Fork(a_, Name("c", 3), First(10)), Release(a_),
                 Release(a_), Release(Name("c", 3))});
  EXPECT_EQ(ReasonOfCommand(result, 0), "");
  EXPECT_EQ(ReasonOfCommand(result, 1), "");
  EXPECT_EQ(ReasonOfCommand(result, 2), "");
  EXPECT_EQ(ReasonOfCommand(result, 3), "SEQUENCE_NOT_FOUND");
  EXPECT_EQ(ReasonOfCommand(result, 4), "");
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain.options().model, First(20), 1)[0]);
  EXPECT_EQ(FreePages(result), 1u);
}

// The copy of a shared page counts among the pages that an item needs.
TEST_P(Command, WithoutAPageForTheCopyNothingIsWritten) {
  Chain chain({.stages = GetParam(), .pages = {3}});
  Steps steps(&chain);
  steps.Run({Item(a_, ids_, 0, 40)});
  steps.Run({}, {Fork(a_, b_, ids_)});
  const auto ids = FirstAnd(40, {5});
  ResultMessage result = steps.Run({Item(b_, ids, 40, 41)});
  EXPECT_EQ(ReasonOfItem(result), "KV_PAGES");
  EXPECT_EQ(result.header.items(0).error().facts().at("asked"), "1");
  result = steps.Run({Item(b_, ids, 40, 41)}, {Release(a_)});
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain.options().model, ids, 1)[0]);
}

// A sequence may be missing on one stage only; whoever has it must let go of it.
TEST(CommandOnTheWire, AReleaseRunsOnEveryStageAndTheFirstErrorIsReported) {
  Chain chain({.stages = 3});
  Steps steps(&chain);
  const auto ids = Prompt(20, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 20)});
  chain.runner(0).DropAllSequences();
  const ResultMessage result =
      steps.Run({}, {Truncate(Name("a", 1), std::span(ids).first(3)), Release(Name("a", 1))});
  for (int command : {0, 1}) {
    EXPECT_EQ(ReasonOfCommand(result, command), "SEQUENCE_NOT_FOUND");
    EXPECT_EQ(result.header.commands(command).error_stage(), 0u);
    EXPECT_EQ(result.header.commands(command).error().node(), "node0");
  }
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(FreePages(result, s), 64u);
  }
}

TEST(CommandOnTheWire, ALaterStageReportsWhatOnlyItRefuses) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const auto ids = Prompt(20, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 20)});
  chain.runner(1).DropAllSequences();
  const ResultMessage result = steps.Run({}, {Fork(Name("a", 1), Name("b", 2), ids)});
  EXPECT_EQ(ReasonOfCommand(result), "SEQUENCE_NOT_FOUND");
  EXPECT_EQ(result.header.commands(0).error_stage(), 1u);
  EXPECT_EQ(chain.runner(0).stats().sequences, 2u);
}

}  // namespace
}  // namespace strata
