#include "worker/service/device_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/footprint/device_limits.h"
#include "common/status.h"
#include "common/units.h"
#include "tests/worker/backend/models/made_up_model.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::MadeUpModel;

constexpr uint64_t kGpuBytes = uint64_t{1} << 30;

class DeviceNeedsTest : public ::testing::Test {
 protected:
  DeviceNeedsTest() {
    spec_.model = model_.spec();
    spec_.last_layer = static_cast<uint32_t>(spec_.model.layers.size()) - 1;
    spec_.embeds = spec_.heads = true;
    spec_.kv_pages = {10};
    needs_ = TensorsOf(spec_.model, 0, spec_.last_layer, true, true);
    for (const StageTensor& need : needs_) {
      const auto stored = model_.Find(need.name);
      EXPECT_TRUE(stored.ok()) << stored.status();
      BlobTensor& tensor = tensors_[need.name];
      tensor.dtype = stored->dtype;
      tensor.blob.bytes = stored->bytes;
    }
  }
  DeviceNeeds Of(const std::vector<double>& weights, const std::vector<uint64_t>& memory) const {
    const std::vector<OutputRange> shares = *SharesByWeight(weights);
    std::vector<DividingDevice> devices;
    for (size_t i = 0; i < shares.size(); ++i) {
      devices.push_back({.index = static_cast<uint32_t>(i) + 2,
                         .name = "GPU of tests",
                         .of_stage = {shares[i], memory[i]}});
    }
    return NeedsOfDevices(
        devices, CudaFootprint(), spec_, needs_,
        [this](const std::string& name) -> const BlobTensor& { return tensors_.at(name); });
  }
  // Of a stage on one device.
  uint64_t WholeWeights() const {
    uint64_t bytes = 0;
    for (const StageTensor& need : needs_) {
      const BlobTensor& tensor = tensors_.at(need.name);
      bytes +=
          CudaFootprint().WeightBytes(need, tensor.dtype, tensor.blob.bytes, v1::QUANTIZE_NONE);
    }
    return bytes;
  }

  const MadeUpModel model_{{.layers = 3,
                            .hidden = 256,
                            .heads = 8,
                            .kv_heads = 4,
                            .head_dim = 32,
                            .rotary_dim = 32,
                            .ffn = 512,
                            .vocab = 512}};
  StageSpec spec_;
  std::vector<StageTensor> needs_;
  std::map<std::string, BlobTensor> tensors_;
};

TEST_F(DeviceNeedsTest, AreOfEachDevicesShare) {
  const DeviceNeeds even = Of({1, 1}, {kGpuBytes, kGpuBytes});
  ASSERT_EQ(even.weight_bytes.size(), 2u);
  EXPECT_GE(even.weight_bytes[0] + even.weight_bytes[1], WholeWeights());
  // The first has all of the embedding.
  EXPECT_GT(even.weight_bytes[0], even.weight_bytes[1]);
  EXPECT_EQ(even.kv_bytes[0], even.kv_bytes[1]);
  EXPECT_EQ(even.kv_bytes[0] + even.kv_bytes[1],
            10 * CudaFootprint().PageBytes(spec_.model, 0, spec_.last_layer, 0, spec_.kv_dtype));
  const DeviceNeeds uneven = Of({1, 3}, {kGpuBytes, kGpuBytes});
  EXPECT_EQ(uneven.kv_bytes[1], 3 * uneven.kv_bytes[0]);
  EXPECT_GT(uneven.weight_bytes[1], even.weight_bytes[1]);
  EXPECT_GT(even.staged_bytes, 0u);
}

TEST_F(DeviceNeedsTest, CountAsTheDeviceThatIsFilledFurthest) {
  const DeviceNeeds even = Of({1, 1}, {kGpuBytes, kGpuBytes});
  EXPECT_EQ(even.CountedBytes(), 2 * (even.weight_bytes[0] + even.kv_bytes[0] + kGatherBytes));
  const DeviceNeeds small = Of({1, 1}, {kGpuBytes, kGpuBytes / 4});
  EXPECT_EQ(small.CountedBytes(), 5 * (small.weight_bytes[1] + small.kv_bytes[1] + kGatherBytes));
}

TEST_F(DeviceNeedsTest, ThatDoNotFitNameTheDeviceItsMemoryAndWhatToDo) {
  const DeviceNeeds needs = Of({1, 1}, {kGpuBytes, kGpuBytes / 4});
  const absl::Status status = needs.NoRoom("layers 0-2", 100 << 20);
  EXPECT_EQ(ReasonOf(status), "MEMORY_LIMIT");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("layers 0-2 need " + FormatSize(needs.weight_bytes[1]) + " for weights"));
  EXPECT_THAT(status.message(), HasSubstr("on GPU 3 (GPU of tests), of whose --memory " +
                                          FormatSize(20 << 20) + " are free"));
  EXPECT_THAT(Describe(status), HasSubstr("memory_bytes=20971520"));
  EXPECT_THAT(Describe(status), HasSubstr("--devices"));
}

}  // namespace
}  // namespace strata
