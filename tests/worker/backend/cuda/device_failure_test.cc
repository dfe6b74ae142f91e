// A device that fails, at each of its calls in turn, while a model is loaded and computed on it;
// and how the weights come there.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;
const std::vector<uint32_t> kIds = {3, 1, 4, 1, 5, 9, 2};

absl::StatusOr<std::vector<float>> LogitsOn(Backend* backend, const MadeUpModel& model) {
  auto forward = ForwardModel::Load(backend, model.spec(), model, {});
  RETURN_IF_ERROR(forward.status());
  auto rows = (*forward)->Run(kIds);
  RETURN_IF_ERROR(rows.status());
  return LogitsOf(*rows);
}

// The calls of a device, of which those from `first` on fail, or that one alone.
struct Calls {
  uint64_t count = 0;
  uint64_t first = ~uint64_t{0};
  bool once = false;
};

std::unique_ptr<Backend> BackendOf(std::shared_ptr<Calls> calls) {
  cuda::DeviceFaults faults;
  faults.fails = [calls] {
    ++calls->count;
    return !calls->once && calls->count > calls->first;
  };
  faults.fails_once = [calls] { return calls->once && calls->count == calls->first + 1; };
  return *cuda::MakeBackendOn(cuda::MakeEmulatedDevice(kDeviceBytes, std::move(faults)));
}

TEST(DeviceFailure, AtAnyCallIsATypedErrorAfterWhichNothingIsLoaded) {
  const MadeUpModel model({.layers = 2});
  const auto calls = std::make_shared<Calls>();
  {
    const auto backend = BackendOf(calls);
    ASSERT_TRUE(LogitsOn(backend.get(), model).ok());
    EXPECT_TRUE(backend->Health().ok());
  }
  const uint64_t all = calls->count;
  ASSERT_GT(all, 50u);
  uint64_t first = 1;  // The very first is asked when the backend is made.
  for (; first < all; first += 1 + first / 8) {
    const auto failing = std::make_shared<Calls>();
    failing->first = first;
    const auto backend = BackendOf(failing);
    const auto logits = LogitsOn(backend.get(), model);
    ASSERT_FALSE(logits.ok()) << first;
    EXPECT_EQ(ReasonOf(logits.status()), "DEVICE_FAILED") << logits.status();
    EXPECT_TRUE(absl::IsUnavailable(logits.status()));
    EXPECT_FALSE(DetailOf(logits.status()).hint().empty());
    EXPECT_EQ(backend->Health(), logits.status()) << "and so it stays";
    const uint64_t asked = failing->count;
    EXPECT_EQ(ReasonOf(LogitsOn(backend.get(), model).status()), "DEVICE_FAILED");
    EXPECT_EQ(failing->count, asked) << "it is not asked again";
    EXPECT_EQ(ReasonOf(backend->MeasureSpeed(0, 1 << 20).status()), "DEVICE_FAILED");
  }
}

TEST(DeviceFailure, OfOneCallIsThatCallsAndTheNextOneComputesTheSameBits) {
  const MadeUpModel model({.layers = 2});
  const auto none = std::make_shared<Calls>();
  const auto right = BackendOf(none);
  const std::vector<float> expected = *LogitsOn(right.get(), model);
  for (uint64_t first = 1; first < none->count; first += 3 + first / 3) {
    const auto failing = std::make_shared<Calls>();
    failing->first = first;
    failing->once = true;
    const auto backend = BackendOf(failing);
    EXPECT_EQ(ReasonOf(LogitsOn(backend.get(), model).status()), "DEVICE_CALL_FAILED") << first;
    EXPECT_TRUE(backend->Health().ok());
    const auto again = LogitsOn(backend.get(), model);
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(again->size(), expected.size());
    EXPECT_EQ(std::memcmp(again->data(), expected.data(), expected.size() * sizeof(float)), 0);
  }
}

TEST(DeviceFailure, ASpeedThatCannotBeMeasuredIsAnErrorAndNoZero) {
  const auto calls = std::make_shared<Calls>();
  const auto backend = BackendOf(calls);
  const auto speed = backend->MeasureSpeed(0, 1 << 20);
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(speed->read_bytes_per_s, 0);
  EXPECT_GT(speed->flops_per_s, 0);
  calls->first = calls->count + 2;
  const auto failed = backend->MeasureSpeed(0, 1 << 20);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(Describe(failed.status()).find("speed"), std::string::npos) << failed.status();
}

// Tells which layer's tensors are read, and how far the device had got by then.
class WatchedTensors : public TensorSource {
 public:
  WatchedTensors(const TensorSource& source, const Calls& calls) : source_(source), calls_(calls) {}
  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override {
    return source_.Describe(name);
  }
  absl::Status Prepare(const std::vector<std::string>& names) const override {
    ++prepared_;
    return source_.Prepare(names);
  }
  absl::StatusOr<TensorView> Find(std::string_view name) const override {
    const size_t at = name.find("layers.");
    if (at != std::string_view::npos) {
      found_.emplace_back(std::string(name.substr(at, name.find('.', at + 7) - at)), calls_.count);
    }
    return source_.Find(name);
  }
  void Release(std::string_view name, size_t bytes) const override { source_.Release(name, bytes); }

  const TensorSource& source_;
  const Calls& calls_;
  mutable int prepared_ = 0;
  mutable std::vector<std::pair<std::string, uint64_t>> found_;
};

TEST(DeviceWeights, AreUploadedLayerByLayerSoThatTheHostHoldsOneAtATime) {
  const MadeUpModel model({.layers = 4});
  const auto calls = std::make_shared<Calls>();
  const auto backend = BackendOf(calls);
  const WatchedTensors watched(model, *calls);
  ASSERT_TRUE(ForwardModel::Load(backend.get(), model.spec(), watched, {}).ok());
  EXPECT_EQ(watched.prepared_, 1) << "all that is fetched at once";
  std::set<std::string> layers;
  for (size_t i = 0; i < watched.found_.size(); ++i) {
    const auto& [layer, copies] = watched.found_[i];
    if (i > 0 && layer != watched.found_[i - 1].first) {
      EXPECT_GT(copies, watched.found_[i - 1].second) << "the layer before is on the device";
      EXPECT_FALSE(layers.contains(layer));
    } else if (i > 0) {
      EXPECT_EQ(copies, watched.found_[i - 1].second);
    }
    layers.insert(layer);
  }
  EXPECT_EQ(layers.size(), 4u);
}

TEST(DeviceWeights, ThatTheDeviceHasNoRoomForAreRefusedBeforeAnythingIsFetched) {
  const MadeUpModel model({.layers = 4});
  const Calls calls;
  const WatchedTensors watched(model, calls);
  const auto backend = *cuda::MakeBackendOn(cuda::MakeEmulatedDevice(1 << 16));
  const auto forward = ForwardModel::Load(backend.get(), model.spec(), watched, {});
  ASSERT_FALSE(forward.ok());
  EXPECT_EQ(ReasonOf(forward.status()), "MEMORY_EXHAUSTED");
  EXPECT_NE(Describe(forward.status()).find("64 KiB are free"), std::string::npos)
      << forward.status();
  EXPECT_EQ(watched.prepared_, 0);
}

}  // namespace
}  // namespace strata::testing
