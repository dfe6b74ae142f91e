#include "worker/backend/cuda/cuda_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/rank_outputs.h"
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
#include "worker/backend/ranked/ranked_shard.h"

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
  CudaBackend(std::vector<std::shared_ptr<Device>> devices, std::vector<OutputRange> shares,
              JoinDevices join, std::unique_ptr<Backend> host, const cpu::Kernels* kernels,
              DeviceFacts facts)
      : devices_(std::move(devices)),
        shares_(std::move(shares)),
        join_(std::move(join)),
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
    RETURN_IF_ERROR(Health());
    RETURN_IF_ERROR(Supports(spec));
    cpu::ThreadPool loading(facts_.threads, 0, cpu::ThreadUse::kLoad);
    const GptOssTensors unfused(spec.model, spec.first_layer, spec.last_layer, weights);
    const ExpertViews named(spec.model, spec.first_layer, spec.last_layer, unfused);
    const LatentTensors tensors(spec.model, spec.first_layer, spec.last_layer, named);
    const std::vector<RankOutputs> outputs = SplitOutputs(spec.model, shares_);
    std::vector<std::unique_ptr<Transfers>> transfers;
    std::vector<RankUpload> uploads;
    for (const std::shared_ptr<Device>& device : devices_) {
      RETURN_IF_ERROR(device->MakeCurrent());
      transfers.push_back(std::make_unique<Transfers>());
      RETURN_IF_ERROR(transfers.back()->Allocate(device.get()));
      uploads.push_back({device.get(), transfers.back().get()});
    }
    ASSIGN_OR_RETURN(
        std::vector<DeviceWeights> on_devices,
        UploadWeights(spec, outputs, uploads, tensors, packed, *kernels_, &loading, progress));
    std::vector<std::unique_ptr<RankShard>> shards;
    for (uint32_t rank = 0; rank < devices_.size(); ++rank) {
      RETURN_IF_ERROR(devices_[rank]->MakeCurrent());
      ASSIGN_OR_RETURN(shards.emplace_back(),
                       CudaShard::Create(spec, outputs, rank, std::move(on_devices[rank]),
                                         std::move(transfers[rank]), devices_[rank]));
    }
    if (shards.size() == 1) {
      return std::move(shards[0]);
    }
    return RankedShard::Create(
        std::move(shards),
        {.join = [devices = devices_, join = join_] { return join(devices); }, .behind = true});
  }

  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    DeviceSpeed all;
    for (const std::shared_ptr<Device>& device : devices_) {
      RETURN_IF_ERROR(device->MakeCurrent());
      const absl::StatusOr<DeviceSpeed> speed =
          MeasureDevice(device.get(), seconds / static_cast<double>(devices_.size()), bytes);
      if (!speed.ok()) {
        return Annotate(speed.status(), "measuring the device's speed");
      }
      all.read_bytes_per_s += speed->read_bytes_per_s;
      all.flops_per_s += speed->flops_per_s;
    }
    return all;
  }
  absl::Status Health() const override {
    for (const std::shared_ptr<Device>& device : devices_) {
      RETURN_IF_ERROR(device->Health());
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<std::shared_ptr<Device>> devices_;  // Of each rank.
  const std::vector<OutputRange> shares_;               // The same.
  const JoinDevices join_;                              // Null: there is one.
  const std::unique_ptr<Backend> host_;
  const cpu::Kernels* const kernels_;  // Packs weights.
  const DeviceFacts facts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOn(std::shared_ptr<Device> device,
                                                       const BackendOptions& options) {
  return MakeBackendOver({{.device = std::move(device)}}, nullptr, options);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOver(const std::vector<DeviceRank>& ranks,
                                                         JoinDevices join,
                                                         const BackendOptions& options) {
  std::vector<double> weights;
  std::vector<std::shared_ptr<Device>> devices;
  for (const DeviceRank& rank : ranks) {
    weights.push_back(rank.share);
    devices.push_back(rank.device);
  }
  ASSIGN_OR_RETURN(std::vector<OutputRange> shares, SharesByWeight(weights));
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> host, MakeCpuBackend({}, options));
  ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::ChooseKernels(""));
  DeviceFacts facts = {.kind = devices[0]->kind(),
                       .name = devices[0]->name(),
                       .threads = UsableCores(),
                       .placed = "",
                       .memory_bytes = 0};
  for (const std::shared_ptr<Device>& device : devices) {
    RETURN_IF_ERROR(device->MakeCurrent());
    ASSIGN_OR_RETURN(const DeviceMemory memory, device->Memory());
    facts.memory_bytes += memory.free_bytes;
  }
  return std::make_unique<CudaBackend>(std::move(devices), std::move(shares), std::move(join),
                                       std::move(host), kernels, std::move(facts));
}

}  // namespace strata::cuda
