#include "worker/service/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "worker/backend/cpu/cpu_backend.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<SelftestModel> Small() {
  return {{.name = "small",
           .hidden = 64,
           .ffn = 128,
           .heads = 4,
           .kv_heads = 2,
           .vocab = 40,
           .positions = 70}};
}

TEST(SelftestTest, ABackendThatKeepsItsClassIsSaidTo) {
  const auto backend = MakeCpuBackend({.threads = 2});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto report = RunSelftest(backend->get(), Small());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->numerics, "cpu-2");
  EXPECT_EQ(report->findings.size(), 4u * 6);
  EXPECT_TRUE(report->AllSame());
  for (const SelftestFinding& finding : report->findings) {
    EXPECT_EQ(finding.numbers, 70u * 40);
  }
  EXPECT_THAT(ToText(*report), HasSubstr("small int4 by int8, in chunks of 7"));
  EXPECT_THAT(ToText(*report), HasSubstr("All as one position after another."));
}

// A shard whose logits depend on how many rows a step has, by one bit of one of them.
class OtherInChunks : public Shard {
 public:
  explicit OtherInChunks(std::unique_ptr<Shard> shard) : shard_(std::move(shard)) {}
  absl::Status Begin(const Batch& batch) override {
    rows_ = batch.rows;
    return shard_->Begin(batch);
  }
  absl::Status Embed() override { return shard_->Embed(); }
  absl::Status EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) override {
    return shard_->EmbedInputs(rows, values);
  }
  absl::Status SetResidual(std::span<const float> values) override {
    return shard_->SetResidual(values);
  }
  absl::Status Attention(uint32_t layer) override { return shard_->Attention(layer); }
  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) override {
    return shard_->AttentionOfSome(layer, rows);
  }
  absl::Status Mlp(uint32_t layer) override { return shard_->Mlp(layer); }
  absl::Status ReadResidual(std::span<float> out) override { return shard_->ReadResidual(out); }
  absl::Status Head(std::span<const uint32_t> rows) override { return shard_->Head(rows); }
  absl::Status ReadLogits(std::span<float> out) override {
    const absl::Status status = shard_->ReadLogits(out);
    out[3] = rows_ == 64 ? std::nextafter(out[3], 100.0f) : out[3];
    return status;
  }
  absl::Status CopyPage(uint32_t group, PageId from, PageId to) override {
    return shard_->CopyPage(group, from, to);
  }
  absl::Status ResizeKv(std::span<const uint64_t> pages) override {
    return shard_->ResizeKv(pages);
  }
  uint64_t MemoryBytes() const override { return shard_->MemoryBytes(); }
  uint64_t StepReadBytes() const override { return shard_->StepReadBytes(); }

 private:
  const std::unique_ptr<Shard> shard_;
  uint32_t rows_ = 0;
};

class OtherInChunksBackend : public Backend {
 public:
  OtherInChunksBackend() : backend_(*MakeCpuBackend({.threads = 1})) {}
  std::string name() const override { return "other"; }
  std::string numerics() const override { return backend_->numerics(); }
  DeviceFacts facts() const override { return backend_->facts(); }
  absl::Status Supports(const StageSpec& spec) const override { return backend_->Supports(spec); }
  absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec, const TensorSource& weights,
                                              PackedStore* packed,
                                              const LoadProgressFn& progress) override {
    auto shard = backend_->Load(spec, weights, packed, progress);
    if (!shard.ok()) {
      return shard.status();
    }
    return std::make_unique<OtherInChunks>(*std::move(shard));
  }
  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    return backend_->MeasureSpeed(seconds, bytes);
  }

 private:
  const std::unique_ptr<Backend> backend_;
};

TEST(SelftestTest, OneBitThatDependsOnTheChunkIsFound) {
  OtherInChunksBackend backend;
  const auto report = RunSelftest(&backend, Small());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->AllSame());
  std::set<std::string> different;
  for (const SelftestFinding& finding : report->findings) {
    if (finding.different != 0) {
      different.insert(finding.what);
      EXPECT_EQ(finding.different, 1u);
      EXPECT_LT(finding.largest_part, 1e-5);
    }
  }
  EXPECT_THAT(different, ::testing::ElementsAre(
                             "small floats, in chunks of 64", "small int4 by int8, in chunks of 64",
                             "small int4, in chunks of 64", "small int8, in chunks of 64"));
  EXPECT_THAT(ToText(*report), HasSubstr("1 of 2800 differ"));
  EXPECT_THAT(ToText(*report), Not(HasSubstr("All as one position")));
}

}  // namespace
}  // namespace strata
