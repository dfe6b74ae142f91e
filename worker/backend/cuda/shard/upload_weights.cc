#include "worker/backend/cuda/shard/upload_weights.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/status.h"

namespace strata::cuda {
namespace {

// A layer of the stage, and how it is loaded: of each rank its own.
struct Part {
  explicit Part(StageSpec of) : spec(std::move(of)) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const StageSpec spec;
  std::deque<cpu::StageWeights> weights;
  std::vector<std::unique_ptr<cpu::WeightLoader>> loaders;
  uint64_t source_bytes = 0;
};

StageSpec LayerOf(const StageSpec& stage, uint32_t layer, bool alone) {
  StageSpec spec = stage;
  spec.first_layer = spec.last_layer = layer;
  spec.heads = stage.heads && layer == stage.last_layer;
  // Where the head is the embedding, it comes with the last layer: all of it, that is, of a stage
  // without other ranks.
  spec.embeds = stage.embeds && layer == stage.first_layer &&
                !(alone && stage.heads && stage.model.tied_head && !spec.heads);
  return spec;
}

}  // namespace

absl::StatusOr<std::vector<DeviceWeights>> UploadWeights(
    const StageSpec& spec, const std::vector<RankOutputs>& outputs,
    std::span<const RankUpload> ranks, const TensorSource& tensors, PackedStore* packed,
    const cpu::Kernels& kernels, cpu::ThreadPool* pool, const LoadProgressFn& progress) {
  const bool alone = ranks.size() == 1;
  std::deque<Part> parts;
  std::vector<uint64_t> bytes(ranks.size());
  uint64_t total = 0;
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    Part& part = parts.emplace_back(LayerOf(spec, layer, alone));
    std::map<std::string, uint64_t> sources;
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      part.loaders.push_back(std::make_unique<cpu::WeightLoader>(
          part.spec, tensors, packed, nullptr, /*may_map=*/false, &part.weights.emplace_back(),
          cpu::RankWeights{&outputs[rank], rank == 0, alone}));
      cpu::WeightLoader& loader = *part.loaders.back();
      RETURN_IF_ERROR(loader.Check());
      bytes[rank] += loader.AlignedBytes(DeviceWeights::kAlignment) +
                     DeviceWeights::ListBytes(spec.model.layers[layer]);
      RETURN_IF_ERROR(loader.AddSources(&sources));
    }
    part.source_bytes = alone ? part.loaders[0]->source_bytes() : 0;
    for (const auto& [name, of_source] : sources) {
      part.source_bytes += alone ? 0 : of_source;
    }
    total += part.source_bytes;
  }
  std::vector<DeviceWeights> on_devices(ranks.size());
  // Before anything is fetched: where it is short, that is all there is to say.
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(ranks[rank].device->MakeCurrent());
    RETURN_IF_ERROR(on_devices[rank].Allocate(ranks[rank].device, bytes[rank]));
  }
  std::set<std::string> missing;
  for (const Part& part : parts) {
    for (const auto& loader : part.loaders) {
      loader->AddMissing(&missing);
    }
  }
  RETURN_IF_ERROR(tensors.Prepare({missing.begin(), missing.end()}));
  for (uint64_t done = 0; !parts.empty(); parts.pop_front()) {
    Part& part = parts.front();
    const LoadProgressFn report = [&](uint64_t of_part, uint64_t) {
      if (progress) {
        progress(done + of_part, total);
      }
    };
    RETURN_IF_ERROR(alone ? part.loaders[0]->LoadPrepared(kernels, pool, report)
                          : cpu::WeightLoader::LoadRanks(part.loaders, kernels, pool, report));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      RETURN_IF_ERROR(ranks[rank].device->MakeCurrent());
      RETURN_IF_ERROR(on_devices[rank].Add(ranks[rank].transfers, part.weights[rank]));
    }
    done += part.source_bytes;
  }
  return on_devices;
}

}  // namespace strata::cuda
