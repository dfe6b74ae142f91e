// Whether the bits of a made-up model on the emulated device are the CPU's, in several orders of
// threads and of streams: with the right code they are, and where it was spoilt (mutants/) they
// must not be.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"
#include "worker/backend/cuda/emulation/emulation.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{1} << 30;

// Of a prompt whose logits are read in two parts, and of steps of one row and of two, as often as
// makes graphs of them.
std::vector<float> LogitsOn(Backend* backend, v1::Activations activations) {
  const MadeUpModel model({.layers = 2});
  const ForwardOptions options = {.quantize = v1::QUANTIZE_INT8, .activations = activations};
  auto forward = ForwardModel::Load(backend, model.spec(), model, options);
  const std::vector<uint32_t> ids = SomeIds(60, model.spec().vocab);
  std::vector<float> logits = LogitsOf(*(*forward)->Run(std::span(ids).first(40)));
  const uint32_t one = (*forward)->NewSequence();
  const uint32_t other = (*forward)->NewSequence();
  for (uint32_t step = 0; step < 6; ++step) {
    std::vector<ForwardModel::Item> items = {{one, std::span(ids).subspan(step, 1)}};
    if (step >= 3) {
      items.push_back({other, std::span(ids).subspan(2 * step, 1)});
    }
    const std::vector<float> rows = LogitsOf(*(*forward)->Step(items));
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CudaMutants, TheBitsOfASmallModelSayWhetherSomethingWasSpoilt) {
  const std::unique_ptr<Backend> cpu = *MakeCpuBackend({.threads = 1});
  bool same = true;
  for (const v1::Activations activations : {v1::ACTIVATIONS_F32, v1::ACTIVATIONS_INT8}) {
    const std::vector<float> expected = LogitsOn(cpu.get(), activations);
    for (const uint64_t order : {0, 1, 5}) {
      const std::unique_ptr<Backend> cuda =
          *cuda::MakeBackendOn(cuda::MakeEmulatedDevice(kDeviceBytes, {}, {.stream_order = order}));
      cuda_emulation::SetThreadOrder(order);
      same = same && SameBits(expected, LogitsOn(cuda.get(), activations));
    }
  }
  EXPECT_EQ(same, !STRATA_SPOILT);
}

}  // namespace
}  // namespace strata::testing
