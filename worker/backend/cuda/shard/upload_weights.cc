#include "worker/backend/cuda/shard/upload_weights.h"

#include <deque>
#include <set>
#include <string>
#include <utility>

#include "common/status.h"

namespace strata::cuda {
namespace {

// A layer of the stage, and how it is loaded.
struct Part {
  Part(StageSpec of, const TensorSource& tensors, PackedStore* packed)
      : spec(std::move(of)), loader(spec, tensors, packed, nullptr, /*may_map=*/false, &weights) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const StageSpec spec;
  cpu::StageWeights weights;
  cpu::WeightLoader loader;
};

StageSpec LayerOf(const StageSpec& stage, uint32_t layer) {
  StageSpec spec = stage;
  spec.first_layer = spec.last_layer = layer;
  spec.heads = stage.heads && layer == stage.last_layer;
  // Where the head is the embedding, it comes with the last layer.
  spec.embeds = stage.embeds && layer == stage.first_layer &&
                !(stage.embeds && stage.heads && stage.model.tied_head && !spec.heads);
  return spec;
}

}  // namespace

absl::StatusOr<DeviceWeights> UploadWeights(const StageSpec& spec, const TensorSource& tensors,
                                            PackedStore* packed, const cpu::Kernels& kernels,
                                            cpu::ThreadPool* pool, const LoadProgressFn& progress,
                                            Device* device, Transfers* transfers) {
  std::deque<Part> parts;
  uint64_t bytes = 0;
  uint64_t total = 0;
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    cpu::WeightLoader& loader = parts.emplace_back(LayerOf(spec, layer), tensors, packed).loader;
    RETURN_IF_ERROR(loader.Check());
    bytes += loader.AlignedBytes(DeviceWeights::kAlignment) +
             DeviceWeights::ListBytes(spec.model.layers[layer]);
    total += loader.source_bytes();
  }
  DeviceWeights on_device;
  // Before anything is fetched: where it is short, that is all there is to say.
  RETURN_IF_ERROR(on_device.Allocate(device, bytes));
  std::set<std::string> missing;
  for (const Part& part : parts) {
    part.loader.AddMissing(&missing);
  }
  RETURN_IF_ERROR(tensors.Prepare({missing.begin(), missing.end()}));
  for (uint64_t done = 0; !parts.empty(); parts.pop_front()) {
    Part& part = parts.front();
    RETURN_IF_ERROR(part.loader.LoadPrepared(kernels, pool, [&](uint64_t of_part, uint64_t) {
      if (progress) {
        progress(done + of_part, total);
      }
    }));
    RETURN_IF_ERROR(on_device.Add(transfers, part.weights));
    done += part.loader.source_bytes();
  }
  return on_device;
}

}  // namespace strata::cuda
