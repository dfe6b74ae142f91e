#include "worker/backend/mlx/kv_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "common/status.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "worker/backend/mlx/guard.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

using ::testing::HasSubstr;

class KvArraysTest : public ::testing::Test {
 protected:
  KvArraysTest() {
    stage_.spec.kv_pages = {4};
    EXPECT_TRUE(kv_.Allocate(stage_.spec).ok());
  }
  void Append(int slot, float value) {
    const mx::array rows = mx::full({1, kWidth}, value);
    kv_.Append(0, mx::array({slot}), rows, rows);
  }
  void Evaluate() {
    std::vector<mx::array> pending;
    kv_.AddPending(&pending);
    mx::eval(pending);
  }
  // The first number of a slot of page 1.
  float KeyAt(int slot) const {
    mx::array keys = mx::contiguous(kv_.Keys(0, mx::array({1})));
    mx::eval(keys);
    return keys.data<float>()[(slot - 16) * kWidth];
  }

  static constexpr int kWidth = 2 * 24;
  const testing::MadeUpModel model_{{}};
  testing::MadeUpStage stage_ = testing::WholeModel(model_);
  KvArrays kv_;
};

TEST_F(KvArraysTest, WhatAFailedStepWouldHaveAppendedIsNotThere) {
  Append(17, 1.5f);
  Evaluate();
  Append(17, 2.5f);
  Append(18, 3.5f);
  kv_.Recover();  // In place of an evaluation.
  std::vector<mx::array> pending;
  kv_.AddPending(&pending);
  EXPECT_TRUE(pending.empty());
  EXPECT_EQ(KeyAt(17), 1.5f);
  EXPECT_EQ(KeyAt(18), 0.0f);
  Append(18, 4.5f);
  Evaluate();
  EXPECT_EQ(KeyAt(18), 4.5f);
}

TEST_F(KvArraysTest, ACopiedPageIsItsOwn) {
  Append(2, 1.5f);
  Evaluate();
  kv_.CopyPage(stage_.spec, 0, 0, 1);
  Append(2, 2.5f);
  Evaluate();
  EXPECT_EQ(KeyAt(18), 1.5f);
}

TEST(GuardTest, ExceptionsBecomeTypedErrors) {
  const absl::Status failed = Guarded("a step", []() -> absl::Status {
    mx::array sum = mx::zeros({1, 8, 4, 39, 77}) + mx::zeros({39, 39});
    mx::eval(sum);
    return absl::OkStatus();
  });
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(failed), "MLX_FAILED");
  EXPECT_THAT(failed.message(), HasSubstr("a step"));
  EXPECT_THAT(failed.message(), HasSubstr("(39,39)"));  // MLX's own words.
  const auto status_of = [](auto thrown) {
    return Guarded("a step", [&]() -> absl::Status { throw thrown; });
  };
  EXPECT_EQ(ReasonOf(status_of(std::bad_alloc())), "MEMORY_EXHAUSTED");
  EXPECT_EQ(ReasonOf(status_of(7)), "MLX_FAILED");
  EXPECT_TRUE(Guarded("a step", [] { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace strata::mlx
