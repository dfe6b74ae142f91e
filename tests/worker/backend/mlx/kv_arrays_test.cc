#include "worker/backend/mlx/kv_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <vector>

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
  // The rows of both heads at a position of a sequence whose pages are 0, 1, ...
  void Append(uint32_t position, float value) {
    const mx::array rows = mx::full({1, kHeads * kWidth}, value);
    std::vector<int> slots;
    for (uint32_t head = 0; head < kHeads; ++head) {
      slots.push_back(static_cast<int>(SlotOf(position / 16, kHeads, head, position)));
    }
    kv_.Append(0, mx::array(slots.data(), {kHeads}, mx::int32), rows, rows);
  }
  void Evaluate() {
    std::vector<mx::array> pending;
    kv_.AddPending(&pending);
    mx::eval(pending);
  }
  // The last number of the last head at a position of page 1.
  float KeyAt(int position) const {
    const std::vector<int> slices = {static_cast<int>(SliceOf(1, kHeads, 0)),
                                     static_cast<int>(SliceOf(1, kHeads, 1))};
    mx::array keys = mx::contiguous(
        mx::astype(kv_.Keys(0, mx::array(slices.data(), {kHeads}, mx::int32)), mx::float32));
    mx::eval(keys);
    EXPECT_EQ(keys.shape(), (mx::Shape{1, kHeads, 16, kWidth}));
    return keys.data<float>()[(position + 1) * kWidth - 1];
  }

  static constexpr int kHeads = 2;
  static constexpr int kWidth = 24;
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

// As attention takes them: each head's keys are one behind another, whatever pages they lie in.
TEST_F(KvArraysTest, KeysComeHeadByHeadInTheOrderOfTheirPositions) {
  for (uint32_t position = 0; position < 48; ++position) {
    std::vector<float> row;
    for (int i = 0; i < kHeads * kWidth; ++i) {
      row.push_back(static_cast<float>(16 * position + i / kWidth));
    }
    std::vector<int> slots;
    for (uint32_t head = 0; head < kHeads; ++head) {
      slots.push_back(static_cast<int>(SlotOf(3 - position / 16, kHeads, head, position)));
    }
    const mx::array rows(row.data(), {1, kHeads * kWidth}, mx::float32);
    kv_.Append(0, mx::array(slots.data(), {kHeads}, mx::int32), rows, rows);
    Evaluate();
  }
  std::vector<int> slices;
  for (uint32_t head = 0; head < kHeads; ++head) {
    for (const uint32_t page : {3, 2, 1}) {
      slices.push_back(static_cast<int>(SliceOf(page, kHeads, head)));
    }
  }
  const mx::array of(slices.data(), {static_cast<int>(slices.size())}, mx::int32);
  mx::array values = mx::astype(*kv_.Values(0, of), mx::float32);
  mx::array keys = mx::astype(kv_.Keys(0, of), mx::float32);
  mx::eval(keys, values);
  ASSERT_EQ(keys.shape(), (mx::Shape{1, kHeads, 48, kWidth}));
  ASSERT_EQ(values.shape(), keys.shape());
  for (int i = 0; i < kHeads * 48 * kWidth; ++i) {
    const int head = i / (48 * kWidth);
    const int position = i / kWidth % 48;
    ASSERT_EQ(keys.data<float>()[i], static_cast<float>(16 * position + head)) << i;
    ASSERT_EQ(values.data<float>()[i], keys.data<float>()[i]) << i;
  }
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
