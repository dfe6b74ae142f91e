#include "worker/backend/cuda/cuda_backend.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cuda/measure.h"
#include "worker/backend/cuda/shard/cuda_shard.h"
#include "worker/backend/cuda/shard/upload_weights.h"
#include "worker/backend/expert_views.h"
#include "worker/backend/gpt_oss_tensors.h"
#include "worker/backend/latent_tensors.h"

namespace strata::cuda {
namespace {

// A thread of a block keeps its share of a head's sums.
constexpr uint32_t kMostValueDim = 1024;

absl::Status Unsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
               absl::StrCat(what, " not supported by the cuda backend yet"));
}

class CudaBackend : public Backend {
 public:
  CudaBackend(std::shared_ptr<Device> device, std::unique_ptr<Backend> host,
              const cpu::Kernels* kernels, DeviceFacts facts)
      : device_(std::move(device)),
        host_(std::move(host)),
        kernels_(kernels),
        facts_(std::move(facts)) {}

  std::string name() const override { return "cuda"; }
  std::string numerics() const override { return host_->numerics(); }
  DeviceFacts facts() const override { return facts_; }

  absl::Status Supports(const StageSpec& spec) const override {
    RETURN_IF_ERROR(host_->Supports(spec));
    float growth = 0;
    for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
      const AttentionSpec& attention = spec.model.layers[i].attention;
      const uint32_t values =
          attention.latent.rank != 0 ? attention.latent.rank : attention.head_dim;
      if (values > kMostValueDim) {
        return Unsupported(absl::StrCat("layer ", i, ": values of ", values, " dimensions, above ",
                                        kMostValueDim, ", are"));
      }
      if (attention.query_growth != 0 && growth != 0 && attention.query_growth != growth) {
        return Unsupported(absl::StrCat("layer ", i, ": another llama_4_scaling_beta is"));
      }
      growth = attention.query_growth != 0 ? attention.query_growth : growth;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec, const TensorSource& weights,
                                              PackedStore* packed,
                                              const LoadProgressFn& progress) override {
    RETURN_IF_ERROR(device_->Health());
    RETURN_IF_ERROR(Supports(spec));
    cpu::ThreadPool loading(facts_.threads, 0, cpu::ThreadUse::kLoad);
    const GptOssTensors unfused(spec.model, spec.first_layer, spec.last_layer, weights);
    const ExpertViews named(spec.model, spec.first_layer, spec.last_layer, unfused);
    const LatentTensors tensors(spec.model, spec.first_layer, spec.last_layer, named);
    auto transfers = std::make_unique<Transfers>();
    RETURN_IF_ERROR(transfers->Allocate(device_.get()));
    ASSIGN_OR_RETURN(DeviceWeights on_device,
                     UploadWeights(spec, tensors, packed, *kernels_, &loading, progress,
                                   device_.get(), transfers.get()));
    return CudaShard::Create(spec, std::move(on_device), std::move(transfers), device_);
  }

  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    absl::StatusOr<DeviceSpeed> speed = MeasureDevice(device_.get(), seconds, bytes);
    return speed.ok() ? speed : Annotate(speed.status(), "measuring the device's speed");
  }
  absl::Status Health() const override { return device_->Health(); }

 private:
  const std::shared_ptr<Device> device_;
  const std::unique_ptr<Backend> host_;
  const cpu::Kernels* const kernels_;  // Packs weights.
  const DeviceFacts facts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOn(std::shared_ptr<Device> device,
                                                       const BackendOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> host, MakeCpuBackend({}, options));
  ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::ChooseKernels(""));
  ASSIGN_OR_RETURN(const DeviceMemory memory, device->Memory());
  DeviceFacts facts = {.kind = device->kind(),
                       .name = device->name(),
                       .threads = UsableCores(),
                       .placed = "",
                       .memory_bytes = memory.free_bytes};
  return std::make_unique<CudaBackend>(std::move(device), std::move(host), kernels,
                                       std::move(facts));
}

}  // namespace strata::cuda
