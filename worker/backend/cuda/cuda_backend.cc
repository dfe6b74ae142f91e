#include "worker/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/footprint/device_limits.h"
#include "common/model/rank_outputs.h"
#include "common/model/stage_devices.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cuda/measure.h"
#include "worker/backend/cuda/nccl/nccl_library.h"
#include "worker/backend/cuda/shard/cuda_shard.h"
#include "worker/backend/cuda/shard/upload_weights.h"
#include "worker/backend/expert_views.h"
#include "worker/backend/gpt_oss_tensors.h"
#include "worker/backend/latent_tensors.h"
#include "worker/backend/ranked/ranked_shard.h"
#include "worker/collective/collective.h"

namespace strata::cuda {
namespace {

// A thread of a block keeps its share of a head's sums.
constexpr uint32_t kMostValueDim = 1024;

absl::Status Unsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
               absl::StrCat(what, " not supported by the cuda backend yet"));
}

// What counts of a stage over several devices of which each has so many bytes for its rank.
uint64_t CountedBytes(std::span<const StageDevice> devices, std::span<const uint64_t> bytes) {
  std::vector<uint64_t> all(bytes.begin(), bytes.end());
  for (uint64_t& one : all) {
    one += kGatherBytes;
  }
  return OfAllMemory(devices, all);
}

// What NCCL failed with, or a rank that waited for another; not what a device did.
bool IsOfJoin(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason == kNcclFailed || reason == kCollectiveDiffers || reason == kCollectiveTimeout ||
         reason == kCollectiveAborted;
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
        facts_(std::move(facts)) {
    for (const DividingDevice& device : facts_.devices) {
      stage_devices_.push_back(device.of_stage);
    }
  }

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
        {.join = [devices = devices_, join = join_,
                  wait = spec.rank_wait] { return join(devices, wait); },
         .behind = true,
         .count = [all = stage_devices_](
                      std::span<const uint64_t> bytes) { return CountedBytes(all, bytes); },
         .is_of_join = IsOfJoin});
  }

  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    DeviceSpeed all;
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      Device& device = *devices_[rank];
      RETURN_IF_ERROR(device.MakeCurrent());
      const absl::StatusOr<DeviceSpeed> speed =
          MeasureDevice(&device, seconds / static_cast<double>(devices_.size()), bytes);
      if (!speed.ok()) {
        return Annotate(speed.status(), "measuring the speed of " + device.label());
      }
      if (devices_.size() == 1) {
        return speed;
      }
      // A stage is as fast as the device that is done last with its part.
      const double part = shares_[rank].size() / static_cast<double>(kShareParts);
      const auto least = [&](double speed_of_all, double own) {
        return rank == 0 ? own / part : std::min(speed_of_all, own / part);
      };
      all.read_bytes_per_s = least(all.read_bytes_per_s, speed->read_bytes_per_s);
      all.flops_per_s = least(all.flops_per_s, speed->flops_per_s);
      all.device_read_bytes_per_s.push_back(speed->read_bytes_per_s);
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
  std::vector<StageDevice> stage_devices_;  // Of facts_.
};

// All names, each with how many devices have it.
std::string NamesOf(const std::vector<std::shared_ptr<Device>>& devices) {
  std::vector<std::pair<std::string, size_t>> counts;
  for (const std::shared_ptr<Device>& device : devices) {
    const auto it = std::find_if(counts.begin(), counts.end(),
                                 [&](const auto& one) { return one.first == device->name(); });
    if (it == counts.end()) {
      counts.emplace_back(device->name(), 1);
    } else {
      ++it->second;
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, count] : counts) {
    names.push_back(devices.size() == 1 ? name : absl::StrCat(count, " x ", name));
  }
  return absl::StrJoin(names, " + ");
}

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
                       .name = NamesOf(devices),
                       .threads = UsableCores(),
                       .placed = "",
                       .memory_bytes = 0};
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    Device& device = *devices[rank];
    RETURN_IF_ERROR(device.MakeCurrent());
    ASSIGN_OR_RETURN(const DeviceMemory memory, device.Memory());
    uint64_t bytes = memory.free_bytes;
    if (devices.size() > 1) {
      bytes = ranks[rank].memory_bytes == 0 ? bytes / 10 * 9
                                            : std::min(bytes, ranks[rank].memory_bytes);
      facts.devices.push_back(
          {device.index(), device.name(), {.share = shares[rank], .memory_bytes = bytes}});
    }
    facts.memory_bytes += bytes;
  }
  return std::make_unique<CudaBackend>(std::move(devices), std::move(shares), std::move(join),
                                       std::move(host), kernels, std::move(facts));
}

}  // namespace strata::cuda
