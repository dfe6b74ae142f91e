#include "coordinator/engine/suspect_search.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "common/status.h"
#include "coordinator/engine/fault_policy.h"

namespace strata {
namespace {

SchedulerSnapshot ReadyToDecode(const std::vector<uint64_t>& sessions) {
  SchedulerSnapshot view;
  view.stages = 3;
  view.decoding = static_cast<uint32_t>(sessions.size());
  for (const uint64_t id : sessions) {
    view.ready.push_back({.id = id, .pending = 1, .decoding = true});
  }
  return view;
}

std::vector<uint64_t> Computed(SuspectSearch* search, const std::deque<SentStep>& in_flight,
                               const std::vector<uint64_t>& ready) {
  SchedulerSnapshot view = ReadyToDecode(ready);
  search->TryApart(in_flight, &view);
  std::vector<uint64_t> ids;
  for (const ReadySession& session : view.ready) {
    ids.push_back(session.id);
  }
  return ids;
}

std::deque<SentStep> StepWith(uint64_t session) {
  std::deque<SentStep> steps(1);
  steps.front().items.emplace_back().session = session;
  return steps;
}

using Ids = std::vector<uint64_t>;

TEST(SuspectSearch, WithoutSuspectsAllAreComputed) {
  SuspectSearch search;
  EXPECT_EQ(Computed(&search, StepWith(1), {1, 2, 3}), (Ids{1, 2, 3}));
  search.NoteLost({});
  EXPECT_EQ(Computed(&search, {}, {1, 2, 3}), (Ids{1, 2, 3}));
}

TEST(SuspectSearch, HalfOfTheSuspectsAreTriedAloneAndInOneStep) {
  SuspectSearch search;
  search.NoteLost({{1, 10}, {2, 10}, {3, 10}, {4, 10}});
  EXPECT_EQ(Computed(&search, StepWith(9), {1, 2, 3, 4, 9}), (Ids{}))
      << "what is in flight has to come through first";
  SchedulerSnapshot view = ReadyToDecode({1, 2, 3, 4, 9});
  search.TryApart({}, &view);
  EXPECT_EQ(view.ready.size(), 2u);
  EXPECT_EQ(view.stages, 1u);
  EXPECT_EQ(view.decoding, 2u);
  EXPECT_EQ(Computed(&search, StepWith(1), {9}), (Ids{})) << "a trial is under way";
  EXPECT_EQ(Computed(&search, {}, {1, 2, 3, 4}), (Ids{1, 2})) << "the half that was chosen";
  search.NoteCommitted(1, 9);
  EXPECT_EQ(Computed(&search, {}, {1, 2, 3, 4}), (Ids{1, 2})) << "not yet where it was lost";
  search.NoteCommitted(1, 10);
  search.NoteCommitted(2, 10);
  EXPECT_EQ(Computed(&search, {}, {1, 2, 3, 4}), (Ids{3})) << "half of those that are left";
}

TEST(SuspectSearch, OneThatIsLostAgainAndAgainAloneOffends) {
  SuspectSearch search;
  for (int i = 0; i < kMaxFaultsWithoutProgress; ++i) {
    search.NoteLost({{1, 10}, {2, 10}});
  }
  search.NoteLost({{1, 10}, {2, 10}});
  EXPECT_EQ(search.Offenders(), (Ids{})) << "it was not alone";
  search.NoteLost({{2, 11}});
  EXPECT_EQ(search.Offenders(), (Ids{2}));
  EXPECT_EQ(search.Faults(2), kMaxFaultsWithoutProgress + 2);
  EXPECT_EQ(search.Faults(1), 0) << "the newest loss explains those before";
  search.Forget(2);
  EXPECT_EQ(search.Offenders(), (Ids{}));
}

TEST(SuspectSearch, AnOffenderIsToldWhichStageItBreaks) {
  const absl::Status cause =
      Error(absl::StatusCode::kUnavailable, "LINK_CLOSED", "it broke").Node("b");
  const v1::ErrorDetail known = DetailOf(BreaksStage("r", 4, {"a", "b"}, cause));
  EXPECT_EQ(known.reason(), "REQUEST_BREAKS_STAGE");
  EXPECT_NE(known.message().find("stage 1 on node \"b\""), std::string::npos) << known.message();
  EXPECT_EQ(known.facts().at("stage"), "1");
  const v1::ErrorDetail unknown = DetailOf(BreaksStage("r", 4, {"a"}, cause));
  EXPECT_NE(unknown.message().find("breaks a stage: "), std::string::npos) << unknown.message();
  EXPECT_FALSE(unknown.facts().contains("stage"));
}

}  // namespace
}  // namespace strata
