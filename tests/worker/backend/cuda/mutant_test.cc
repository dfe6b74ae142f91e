// Whether the bits of a made-up model on the emulated device are the CPU's, in several orders of
// threads: with the right kernels they are, and with one that was spoilt (mutants/) they must not
// be.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
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

std::vector<float> LogitsOn(Backend* backend, v1::Activations activations) {
  const MadeUpModel model({.layers = 2});
  const ForwardOptions options = {.quantize = v1::QUANTIZE_INT8, .activations = activations};
  auto forward = ForwardModel::Load(backend, model.spec(), model, options);
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 24; ++i) {
    ids.push_back((i * i + 3 * i) % model.spec().vocab);
  }
  return LogitsOf(*(*forward)->Run(ids));
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CudaKernels, TheBitsOfASmallModelSayWhetherAKernelWasSpoilt) {
  const std::unique_ptr<Backend> cpu = *MakeCpuBackend({.threads = 1});
  const std::unique_ptr<Backend> cuda =
      *cuda::MakeBackendOn(cuda::MakeEmulatedDevice(kDeviceBytes));
  bool same = true;
  for (const v1::Activations activations : {v1::ACTIVATIONS_F32, v1::ACTIVATIONS_INT8}) {
    const std::vector<float> expected = LogitsOn(cpu.get(), activations);
    for (const uint64_t order : {0, 1, 5}) {
      cuda_emulation::SetThreadOrder(order);
      same = same && SameBits(expected, LogitsOn(cuda.get(), activations));
    }
  }
  EXPECT_EQ(same, !STRATA_SPOILT);
}

}  // namespace
}  // namespace strata::testing
