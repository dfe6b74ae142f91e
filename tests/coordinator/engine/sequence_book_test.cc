#include "coordinator/engine/sequence_book.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "coordinator/engine/session_queue.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

constexpr uint32_t kPrompt = 3 * kPageTokens + 2;

EngineConfig WithPrefixes() {
  EngineConfig config = MakeConfig(2, 32);
  config.prefix_cache = true;
  return config;
}

class SequenceBookTest : public ::testing::Test {
 protected:
  // A session with a claim, whose prompt is that of "same".
  LiveSession& Open(const std::string& id) {
    SessionRequest request = MakeRequest("same", kPrompt, 8);
    request.key = request.request_id = id;
    LiveSession& session = sessions_.Add(std::move(request), nullptr, 8, TimePoint{0});
    book_.Open(session);
    EXPECT_TRUE(book_.Reserve(session, {}));
    sessions_.Run(session);
    return session;
  }

  void Close(LiveSession& session, bool may_keep = false) {
    book_.Close(session, may_keep);
    sessions_.Erase(session);
  }

  SentItem Send(LiveSession& session, uint32_t rows) {
    const WaveItem tokens = book_.Send(session, rows);
    SentItem sent;
    sent.session = tokens.session;
    sent.sequence = tokens.sequence;
    sent.position = tokens.position;
    sent.rows = tokens.rows;
    return sent;
  }

  SequenceBook::ItemOutcome Commit(const SentItem& sent) {
    return book_.CommitItem(sent, ++step_, v1::ItemResult());
  }

  // The commands of the next step.
  SentStep Commands() {
    SentStep sent;
    sent.step = ++step_;
    book_.AddCommands(&frame_, &sent);
    return sent;
  }

  void CommitReleases(const SentStep& sent) {
    for (const SentCommand& command : sent.commands) {
      ASSERT_EQ(command.kind, CommandKind::kRelease);
      book_.CommitRelease(command.sequence);
    }
  }

  const EngineConfig config_ = WithPrefixes();
  SequenceNumbers numbers_{1};
  EngineCounters counters_;
  SessionQueue sessions_;
  SequenceBook book_{config_, &numbers_, &counters_};
  v1::StepFrame frame_;
  uint64_t step_ = 0;
};

TEST_F(SequenceBookTest, WhatIsSentIsCommittedByItsResult) {
  LiveSession& session = Open("a");
  EXPECT_EQ(session.kv.sequence(), 0u) << "no stage was told of it";
  const SentItem first = Send(session, 20);
  const SentItem second = Send(session, kPrompt - 20);
  EXPECT_NE(session.kv.sequence(), 0u);
  EXPECT_EQ(session.kv.sent(), kPrompt);
  EXPECT_EQ(session.kv.committed(), 0u);
  const SequenceBook::ItemOutcome outcome = Commit(first);
  EXPECT_EQ(outcome.end, SequenceBook::ItemEnd::kCommitted);
  EXPECT_EQ(outcome.session, session.id);
  EXPECT_EQ(session.kv.committed(), 20u);
  Commit(second);
  EXPECT_EQ(session.kv.committed(), kPrompt);
}

TEST_F(SequenceBookTest, LostStepsGoBackToWhatWasCommitted) {
  LiveSession& session = Open("a");
  Commit(Send(session, 20));
  const SentItem lost = Send(session, 10);
  book_.Rewind(session);
  EXPECT_EQ(session.kv.sent(), 20u);
  SentStep sent;
  book_.AddResync(&frame_, &sent);
  ASSERT_EQ(sent.commands.size(), 1u);
  EXPECT_EQ(sent.commands[0].kind, CommandKind::kTruncate);
  EXPECT_EQ(sent.commands[0].length, 20u);
  v1::StepResult result;
  result.add_commands();
  book_.CommitResync(sent, result);
  EXPECT_EQ(session.kv.sent(), 20u);
  const SentItem again = Send(session, 10);
  EXPECT_EQ(again.position, lost.position);
  EXPECT_EQ(again.sequence, lost.sequence);
}

TEST_F(SequenceBookTest, WithNothingCommittedASessionBeginsUnderAnotherNumber) {
  LiveSession& session = Open("a");
  const uint64_t before = Send(session, 20).sequence;
  book_.Rewind(session);
  EXPECT_EQ(session.kv.sequence(), 0u);
  EXPECT_FALSE(session.kv.replaying()) << "there is nothing that it had";
  SentStep sent;
  book_.AddResync(&frame_, &sent);
  EXPECT_EQ(sent.commands.size(), 0u) << "what is not named is released";
  book_.CommitResync(sent, {});
  ASSERT_TRUE(HasRoom(book_.ledger(), session)) << "the claim came with the release";
  EXPECT_GT(Send(session, 20).sequence, before);
}

TEST_F(SequenceBookTest, AReplayedSessionTakesOverItsClaimWhenTheOldSequenceIsReleased) {
  LiveSession& session = Open("a");
  Commit(Send(session, 20));
  book_.Replay(session);
  EXPECT_TRUE(session.kv.replaying());
  EXPECT_EQ(session.kv.claim(), std::nullopt);
  EXPECT_EQ(session.kv.committed(), 0u);
  ASSERT_TRUE(book_.WantsCommands());
  CommitReleases(Commands());
  EXPECT_TRUE(HasRoom(book_.ledger(), session));
  EXPECT_FALSE(book_.WantsCommands());
  book_.CaughtUp(session);
  EXPECT_FALSE(session.kv.replaying());
}

TEST_F(SequenceBookTest, ASuccessorThatEndsLeavesTheClaimToTheRelease) {
  LiveSession& session = Open("a");
  Commit(Send(session, 20));
  book_.Replay(session);
  Close(session);
  EXPECT_EQ(book_.ledger().claims(), 1u) << "the stages still hold it";
  CommitReleases(Commands());
  EXPECT_EQ(book_.ledger().claims(), 0u);
}

TEST_F(SequenceBookTest, AfterARejectedItemNothingOfTheSequenceIsCommitted) {
  LiveSession& session = Open("a");
  Commit(Send(session, 10));
  const SentItem rejected = Send(session, 10);
  const SentItem after = Send(session, 10);
  v1::ItemResult error;
  error.mutable_error()->set_code(9);
  const SequenceBook::ItemOutcome outcome = book_.CommitItem(rejected, ++step_, error);
  EXPECT_EQ(outcome.end, SequenceBook::ItemEnd::kRejected);
  EXPECT_EQ(outcome.session, session.id);
  EXPECT_EQ(Commit(after).end, SequenceBook::ItemEnd::kIgnored);
  EXPECT_EQ(book_.CommitItem(after, ++step_, error).end, SequenceBook::ItemEnd::kIgnored)
      << "told once";
  EXPECT_EQ(session.kv.committed(), 10u);
}

TEST_F(SequenceBookTest, ResultsOfASessionThatEndedAreNobodys) {
  LiveSession& session = Open("a");
  const SentItem sent = Send(session, 10);
  Close(session);
  const SequenceBook::ItemOutcome outcome = Commit(sent);
  EXPECT_EQ(outcome.end, SequenceBook::ItemEnd::kCommitted);
  EXPECT_EQ(outcome.session, 0u);
}

TEST_F(SequenceBookTest, AKeptSequenceIsWhatTheNextOneBeginsOn) {
  LiveSession& first = Open("a");
  book_.prefixes().BeginIfReady(first);
  EXPECT_TRUE(first.kv.begun());
  Commit(Send(first, kPrompt));
  const uint64_t source = first.kv.sequence();
  Close(first, /*may_keep=*/true);
  EXPECT_EQ(book_.prefixes().kept(), 1u);

  LiveSession& second = Open("b");
  book_.prefixes().BeginIfReady(second);
  ASSERT_TRUE(second.kv.to_be_forked());
  EXPECT_EQ(second.kv.sent(), 3 * kPageTokens);
  SentStep sent;
  book_.AddFork(second, &frame_, &sent);
  ASSERT_EQ(sent.commands.size(), 1u);
  EXPECT_EQ(sent.commands[0].source, source);
  EXPECT_EQ(second.kv.committed(), 0u);
  book_.CommitFork(sent.commands[0], v1::CommandResult());
  EXPECT_EQ(second.kv.committed(), 3 * kPageTokens);
  EXPECT_EQ(second.kv.cached_tokens(), 3 * kPageTokens);
  EXPECT_EQ(counters_.prefix_hits, 1u);
}

TEST_F(SequenceBookTest, AForkThatFailsDropsItsSource) {
  LiveSession& first = Open("a");
  book_.prefixes().BeginIfReady(first);
  Commit(Send(first, kPrompt));
  Close(first, /*may_keep=*/true);
  LiveSession& second = Open("b");
  book_.prefixes().BeginIfReady(second);
  SentStep sent;
  book_.AddFork(second, &frame_, &sent);
  v1::CommandResult error;
  error.mutable_error()->set_code(9);
  book_.CommitFork(sent.commands[0], error);
  EXPECT_EQ(book_.prefixes().kept(), 0u);
  EXPECT_TRUE(second.kv.replaying());
  EXPECT_EQ(second.kv.sent(), 0u);
  EXPECT_EQ(counters_.replays, 1u);
}

TEST_F(SequenceBookTest, WhoGivesUpBeforeAnythingWasSentGivesBackAtOnce) {
  LiveSession& session = Open("a");
  book_.GiveUp(session);
  EXPECT_EQ(book_.ledger().claims(), 0u);
  EXPECT_FALSE(book_.WantsCommands());
  ASSERT_TRUE(book_.Reserve(session, {}));
  Commit(Send(session, 20));
  book_.GiveUp(session);
  EXPECT_EQ(book_.ledger().claims(), 1u);
  CommitReleases(Commands());
  EXPECT_EQ(book_.ledger().claims(), 0u);
}

TEST_F(SequenceBookTest, StagesThatAreLoadedAnewHaveNothing) {
  LiveSession& session = Open("a");
  Commit(Send(session, 20));
  book_.ForgetAll(&sessions_.all());
  EXPECT_TRUE(session.kv.replaying());
  EXPECT_EQ(session.kv.sequence(), 0u);
  EXPECT_EQ(session.kv.claim(), std::nullopt);
  EXPECT_EQ(book_.ledger().claims(), 0u);
  EXPECT_FALSE(book_.WantsCommands()) << "there is nothing to release either";
}

}  // namespace
}  // namespace strata
