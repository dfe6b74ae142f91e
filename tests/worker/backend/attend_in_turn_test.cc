#include "worker/backend/cpu/shard/attend_in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace strata::cpu {
namespace {

// What one call was told: its unit and those that it knows to follow.
struct LoggedCall {
  uint32_t unit = 0;
  std::vector<uint32_t> following;
  bool operator==(const LoggedCall&) const = default;
};

struct TurnLog {
  std::vector<LoggedCall> calls;
  std::vector<uint32_t> before;
  std::vector<int> asked_of;  // By unit.
};

// Units are told apart by `position`.
TurnLog RunLogged(const std::vector<bool>& has_work, size_t begin, size_t end,
                  PrefetchedPages* prefetched) {
  TurnLog log;
  log.asked_of.resize(has_work.size());
  AttendInTurn(
      begin, end, has_work.size(), prefetched,
      [&](uint32_t unit) {
        ++log.asked_of[unit];
        AttendArgs args;
        args.position = unit;
        return has_work[unit] ? std::make_optional(args) : std::nullopt;
      },
      [&](uint32_t unit) {
        EXPECT_EQ(log.before.size(), log.calls.size());
        log.before.push_back(unit);
      },
      [&](const AttendArgs& args) {
        EXPECT_EQ(args.turn, args.position + 1);
        EXPECT_EQ(args.prefetched, prefetched);
        LoggedCall call{args.position, {}};
        for (const AttendArgs* next = args.next; next != nullptr; next = next->next) {
          call.following.push_back(next->position);
        }
        log.calls.push_back(call);
        prefetched->turn = args.turn;  // As kernels do.
      });
  return log;
}

// The units with work of [begin, end), each with the next three of [begin, last).
std::vector<LoggedCall> Expected(const std::vector<bool>& has_work, size_t begin, size_t end,
                                 size_t last) {
  std::vector<uint32_t> units;
  for (size_t unit = begin; unit < last; ++unit) {
    if (has_work[unit]) {
      units.push_back(static_cast<uint32_t>(unit));
    }
  }
  std::vector<LoggedCall> calls;
  for (size_t i = 0; i < units.size() && units[i] < end; ++i) {
    LoggedCall call{units[i], {}};
    for (size_t next = i + 1; next < units.size() && next <= i + 3; ++next) {
      call.following.push_back(units[next]);
    }
    calls.push_back(call);
  }
  return calls;
}

TEST(AttendInTurn, EachUnitWithWorkIsAttendedOnceInOrderAndKnowsTheThreeBehindIt) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 1 + random() % 12;
    std::vector<bool> has_work(count);
    for (size_t unit = 0; unit < count; ++unit) {
      has_work[unit] = random() % 3 != 0;
    }
    const size_t begin = random() % count;
    const size_t end = begin + random() % (count - begin + 1);
    PrefetchedPages prefetched;
    const TurnLog log = RunLogged(has_work, begin, end, &prefetched);
    // The unit behind the end is known too: the thread most likely comes to it next.
    const std::vector<LoggedCall> expected =
        Expected(has_work, begin, end, std::min(end + 1, count));
    ASSERT_EQ(log.calls, expected);
    ASSERT_EQ(log.before.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(log.before[i], expected[i].unit);
    }
    for (size_t unit = 0; unit < count; ++unit) {
      EXPECT_LE(log.asked_of[unit], unit >= begin && unit <= end ? 1 : 0);
    }
  }
}

TEST(AttendInTurn, AThreadThatGoesOnKeepsWhatItAskedFor) {
  const std::vector<bool> all(8, true);
  PrefetchedPages prefetched;
  RunLogged(all, 0, 3, &prefetched);
  prefetched.page = 5;
  prefetched.ahead = 7;
  RunLogged(all, 3, 3, &prefetched);  // No units: nothing is touched.
  EXPECT_EQ(prefetched.page, 5u);
  EXPECT_EQ(prefetched.ahead, 7);
  const TurnLog log = RunLogged(all, 3, 5, &prefetched);
  EXPECT_EQ(prefetched.ahead, 7);
  EXPECT_EQ(log.calls, Expected(all, 3, 5, 6));
}

TEST(AttendInTurn, AThreadThatHelpsAnotherForgetsWhatItAskedForAndLooksNotBehindTheEnd) {
  const std::vector<bool> all(8, true);
  PrefetchedPages prefetched;
  RunLogged(all, 5, 7, &prefetched);
  ASSERT_EQ(prefetched.turn, 7u);
  prefetched.page = 5;
  prefetched.ahead = 7;
  const TurnLog log = RunLogged(all, 2, 4, &prefetched);
  EXPECT_EQ(prefetched.page, 0u);
  EXPECT_EQ(prefetched.ahead, 0);
  EXPECT_EQ(log.calls, Expected(all, 2, 4, 4));
}

}  // namespace
}  // namespace strata::cpu
