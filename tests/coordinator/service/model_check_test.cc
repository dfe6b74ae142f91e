// Coordinator::CheckModel against workers that a test speaks for: they compute no step, so the
// stages' part never ends by itself.
#include <gmock/gmock.h>

#include "tests/coordinator/service/coordinator_testing.h"

namespace strata {
namespace {

using testing::CoordinatorTest;
using testing::Eventually;
using testing::TestWorker;

class ModelCheckTest : public CoordinatorTest {
 protected:
  absl::StatusOr<v1::ModelCheck> Check(
      const std::string& model, const std::string& node = "", uint32_t tokens = 0,
      const std::function<bool()>& gone = [] { return true; }) {
    v1::CheckModelRequest request;
    request.set_name(model);
    request.set_node(node);
    request.set_tokens(tokens);
    return coordinator_->checks()->Check(
        request, [this](const v1::CheckModelProgress& progress) { said_.push_back(progress); },
        gone);
  }
  std::string Reason(const absl::StatusOr<v1::ModelCheck>& check) {
    return ReasonOf(check.status());
  }
  size_t Requests() { return coordinator_->requests()->List()->size(); }

  std::vector<v1::CheckModelProgress> said_;
};

TEST_F(ModelCheckTest, WhatCannotBeCheckedIsRefusedBeforeAnythingIsComputed) {
  Start();
  EXPECT_EQ(Reason(Check("m")), "MODEL_NOT_FOUND");
  AddModel("m");
  EXPECT_EQ(Reason(Check("m")), "MODEL_NOT_LOADED");
  EXPECT_EQ(Reason(Check("m", "", 257)), "BAD_TOKENS");
  TestWorker a(coordinator_.get(), "a", 1);
  TestWorker b(coordinator_.get(), "b", 2);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(b.Join().ok());
  LoadOn(&a, "m");
  EXPECT_EQ(Reason(Check("m", "nowhere")), "NODE_NOT_FOUND");
  b.Leave();
  ASSERT_TRUE(Eventually([&] { return NodeState("b") == "lost"; }));
  EXPECT_EQ(Reason(Check("m", "b")), "NODE_NOT_READY");
  EXPECT_EQ(Reason(Check("m", "a", 256)), "CONTEXT_EXCEEDED");
  ASSERT_TRUE(coordinator_->nodes()->SetDraining("a", true).ok());
  EXPECT_EQ(Reason(Check("m")), "NO_NODES");
  EXPECT_EQ(Requests(), 0u);
}

TEST_F(ModelCheckTest, ItIsARequestWhileItWaitsForTheStagesAndGoesWithItsCall) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  int asked = 0;
  const auto check = Check("m", "", 0, [&] {
    EXPECT_EQ(Requests(), 1u);
    const v1::Session session = coordinator_->requests()->List()->at(0);
    EXPECT_EQ(session.request_id().substr(0, 6), "check-");
    EXPECT_EQ(session.prompt_tokens(), 24u);
    return ++asked == 3;
  });
  EXPECT_EQ(Reason(check), "CANCELLED");
  EXPECT_EQ(Requests(), 0u);
  ASSERT_FALSE(said_.empty());
  EXPECT_EQ(said_[0].phase(), "stages");
  EXPECT_EQ(said_[0].layers_done(), 0u);
  EXPECT_EQ(said_[0].layers_total(), 4u);
}

TEST_F(ModelCheckTest, WhatEndsItsRequestEndsIt) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  const auto cancelled = Check("m", "", 0, [&] {
    const std::string id = coordinator_->requests()->List()->at(0).request_id();
    EXPECT_TRUE(coordinator_->requests()->CancelById(id).ok());
    return false;
  });
  EXPECT_EQ(Reason(cancelled), "CANCELLED");
  const auto unloaded = Check("m", "", 0, [&] {
    EXPECT_TRUE(coordinator_->loads()->Unload("m", /*force=*/true).ok());
    return false;
  });
  EXPECT_EQ(Reason(unloaded), "UNLOADED");
}

}  // namespace
}  // namespace strata
