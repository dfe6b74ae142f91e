#include "coordinator/service/constraints/shared_work.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/service/constraints/recent_refusals.h"

namespace strata {
namespace {

TEST(SharedWork, IsDoneOnceForAllThatWait) {
  SharedWork<int> work(10);
  std::vector<int> told;
  const auto waiter = [&] {
    return SharedWork<int>::Waiter{[] { return true; },
                                   [&](const absl::StatusOr<int>& made) { told.push_back(*made); }};
  };
  EXPECT_EQ(work.Join("a", waiter()), SharedWork<int>::Joined::kFirst);
  EXPECT_EQ(work.Join("a", waiter()), SharedWork<int>::Joined::kLater);
  EXPECT_EQ(work.Join("b", waiter()), SharedWork<int>::Joined::kFirst);
  work.End("a", 5);
  EXPECT_EQ(told, (std::vector<int>{5, 5}));
  EXPECT_EQ(work.Join("a", waiter()), SharedWork<int>::Joined::kFirst);
}

TEST(SharedWork, IsNotDoneForNobody) {
  SharedWork<int> work(10);
  bool wanted = false;
  std::vector<absl::Status> told;
  const auto waiter = [&](bool always) {
    return SharedWork<int>::Waiter{
        [&wanted, always] { return always || wanted; },
        [&](const absl::StatusOr<int>& made) { told.push_back(made.status()); }};
  };
  work.Join("a", waiter(false));
  work.Join("a", waiter(true));
  EXPECT_TRUE(work.Wanted("a", absl::CancelledError()));
  work.Join("b", waiter(false));
  EXPECT_FALSE(work.Wanted("b", absl::CancelledError()));
  EXPECT_EQ(told, std::vector<absl::Status>{absl::CancelledError()});
  EXPECT_EQ(work.Join("b", waiter(false)), SharedWork<int>::Joined::kFirst);
}

TEST(SharedWork, HasNoMoreWaitersThanItMay) {
  SharedWork<int> work(2);
  const SharedWork<int>::Waiter waiter = {[] { return true; }, [](const absl::StatusOr<int>&) {}};
  work.Join("a", waiter);
  work.Join("b", waiter);
  EXPECT_EQ(work.Join("a", waiter), SharedWork<int>::Joined::kFull);
  work.End("b", 1);
  EXPECT_EQ(work.Join("a", waiter), SharedWork<int>::Joined::kLater);
}

TEST(RecentRefusals, AreForgottenAfterAWhileAndWhereThereAreMany) {
  RecentRefusals refusals;
  refusals.Add("a", absl::InvalidArgumentError("no"), TimePoint(0));
  EXPECT_EQ(refusals.Find("a", RecentRefusals::kFor - nanoseconds(1)),
            absl::InvalidArgumentError("no"));
  EXPECT_TRUE(refusals.Find("b", TimePoint(0)).ok());
  refusals.Add("a", absl::InvalidArgumentError("later"), TimePoint(1));
  EXPECT_TRUE(refusals.Find("a", RecentRefusals::kFor).ok());
  for (size_t i = 0; i <= RecentRefusals::kMost; ++i) {
    refusals.Add(std::to_string(i), absl::InvalidArgumentError("no"), TimePoint(0));
  }
  EXPECT_TRUE(refusals.Find("0", TimePoint(0)).ok());
  EXPECT_FALSE(refusals.Find("1", TimePoint(0)).ok());
}

}  // namespace
}  // namespace strata
