#include "coordinator/engine/session_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/engine/sequence_book.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

TimePoint After(int64_t ms) { return TimePoint{0} + milliseconds(ms); }

class SessionQueueTest : public ::testing::Test {
 protected:
  LiveSession& Add(SessionRequest request) {
    LiveSession& session = sessions_.Add(std::move(request), nullptr, 8, After(0));
    book_.Open(session);
    return session;
  }
  LiveSession& Add(const std::string& id, const std::string& tenant = "", int32_t priority = 0) {
    SessionRequest request = MakeRequest(id, 10, 8);
    request.cache_salt = tenant;
    request.priority = priority;
    return Add(std::move(request));
  }

  // One that runs and has an answer that its reader has not read since `since`.
  LiveSession& AddUnread(const std::string& id, TimePoint since) {
    LiveSession& session = Add(id);
    EXPECT_TRUE(book_.Reserve(session, {}));
    sessions_.Run(session);
    book_.Send(session, 10);
    session.tokens.push_back(1);
    session.paused = true;
    session.paused_since = since;
    return session;
  }

  const EngineConfig config_ = MakeConfig(1, 32);
  SequenceNumbers numbers_{1};
  EngineCounters counters_;
  SessionQueue sessions_;
  SequenceBook book_{config_, &numbers_, &counters_};
};

TEST_F(SessionQueueTest, ASessionIsInOnePlaceUntilItEnds) {
  SessionRequest request = MakeRequest("a", 10, 8);
  request.deadline = After(100);
  request.embeddings.push_back({.position = 0, .values = "12345678"});
  LiveSession& session = Add(std::move(request));
  EXPECT_EQ(sessions_.queued().size(), 1u);
  sessions_.Run(session);
  EXPECT_EQ(sessions_.queued().size() + sessions_.parked().size(), 0u);
  sessions_.Park(session);
  EXPECT_TRUE(sessions_.IsParked(session));
  EXPECT_EQ(sessions_.queued().size() + sessions_.running().size(), 0u);
  sessions_.Queue(session);
  EXPECT_EQ(sessions_.running().size() + sessions_.parked().size(), 0u);
  EXPECT_TRUE(sessions_.HasKey("scope/a"));
  EXPECT_GT(sessions_.embedding_bytes(), 0u);
  book_.Close(session, false);
  sessions_.Erase(session);
  EXPECT_FALSE(sessions_.HasKey("scope/a"));
  EXPECT_EQ(sessions_.embedding_bytes(), 0u);
  EXPECT_EQ(sessions_.NextDeadline(), std::nullopt);
  EXPECT_TRUE(sessions_.all().empty() && sessions_.queued().empty());
}

TEST_F(SessionQueueTest, TheHighestPriorityStartsFirstAndOfItWhoseTenantWasServedLeast) {
  LiveSession& first = Add("a1", "a");
  EXPECT_EQ(&sessions_.Next(), &first);
  sessions_.Run(first);
  sessions_.Charge(first);
  LiveSession& second = Add("a2", "a");
  Add("a3", "a");
  LiveSession& other = Add("b1", "b");
  EXPECT_EQ(&sessions_.Next(), &second) << "the other tenant begins level with who waits";
  sessions_.Run(second);
  sessions_.Charge(second);
  EXPECT_EQ(&sessions_.Next(), &other) << "its tenant was served less, though it came later";
  LiveSession& urgent = Add("a4", "a", 1);
  EXPECT_EQ(&sessions_.Next(), &urgent);
}

TEST_F(SessionQueueTest, WhoWasPreemptedIsNextOfItsPriority) {
  Add("a1", "a");
  LiveSession& preempted = Add("b1", "b");
  preempted.started = After(0);
  EXPECT_EQ(&sessions_.Next(), &preempted);
}

TEST_F(SessionQueueTest, WhatIsComputedAgainCostsNothing) {
  LiveSession& again = Add("a1", "a");
  sessions_.Charge(again);
  sessions_.Charge(again);
  EXPECT_EQ(again.charged, 10u);
}

TEST_F(SessionQueueTest, DeadlinesPassInTheirOrder) {
  for (const int64_t ms : {300, 100}) {
    SessionRequest request = MakeRequest(std::to_string(ms), 10, 8);
    request.deadline = After(ms);
    Add(std::move(request));
  }
  EXPECT_EQ(sessions_.NextDeadline(), After(100));
  EXPECT_EQ(sessions_.Expired(After(99)), nullptr);
  LiveSession* expired = sessions_.Expired(After(400));
  ASSERT_NE(expired, nullptr);
  EXPECT_EQ(expired->request.request_id, "100");
}

TEST_F(SessionQueueTest, WhoDoesNotReadGivesWayBeforeTheLeastImportant) {
  LiveSession& first = Add("a");
  LiveSession& last = Add("b");
  sessions_.Run(first);
  sessions_.Run(last);
  EXPECT_EQ(&sessions_.Victim(first, After(0)), &last);
  EXPECT_EQ(&sessions_.Victim(last, After(0)), &last) << "itself, if there is none behind it";
  AddUnread("c", After(200));
  LiveSession& longest = AddUnread("d", After(100));
  EXPECT_EQ(sessions_.NextUnread(After(0)), After(100) + kReaderPatience);
  EXPECT_EQ(sessions_.LongestUnread(After(99) + kReaderPatience), nullptr);
  EXPECT_EQ(&sessions_.Victim(first, After(300) + kReaderPatience), &longest);
}

TEST_F(SessionQueueTest, WhoIsGuaranteedIsNobodysVictim) {
  LiveSession& first = Add("a");
  SessionRequest request = MakeRequest("b", 10, 8);
  request.guaranteed = true;
  LiveSession& promised = Add(std::move(request));
  sessions_.Run(first);
  sessions_.Run(promised);
  EXPECT_EQ(sessions_.Growing(), 1u);
  EXPECT_EQ(&sessions_.Victim(first, After(0)), &first);
}

}  // namespace
}  // namespace strata
