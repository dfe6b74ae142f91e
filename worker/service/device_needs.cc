#include "worker/service/device_needs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/footprint/device_limits.h"
#include "common/footprint/rank_footprint.h"
#include "common/model/rank_outputs.h"
#include "common/model/stage_devices.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

std::vector<StageDevice> StageDevicesOf(const std::vector<DividingDevice>& devices) {
  std::vector<StageDevice> of_stage;
  for (const DividingDevice& device : devices) {
    of_stage.push_back(device.of_stage);
  }
  return of_stage;
}

std::vector<uint64_t> BytesOf(const DeviceNeeds& needs) {
  std::vector<uint64_t> bytes;
  for (size_t i = 0; i < needs.devices.size(); ++i) {
    bytes.push_back(needs.weight_bytes[i] + needs.kv_bytes[i] + kGatherBytes);
  }
  return bytes;
}

}  // namespace

uint64_t DeviceNeeds::CountedBytes() const {
  return OfAllMemory(StageDevicesOf(devices), BytesOf(*this));
}

absl::Status DeviceNeeds::NoRoom(const std::string& layers, uint64_t free) const {
  const std::vector<StageDevice> of_stage = StageDevicesOf(devices);
  const size_t fullest = FullestDevice(of_stage, BytesOf(*this));
  const uint64_t of_it = OfOneDevice(of_stage, fullest, free);
  const std::string gpu = absl::StrCat("GPU ", devices[fullest].index);
  return Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT",
               absl::StrCat(layers, " need ", FormatSize(weight_bytes[fullest]), " for weights, ",
                            FormatSize(kv_bytes[fullest]), " for KV and ", FormatSize(kGatherBytes),
                            " for gathers on ", gpu, " (", devices[fullest].name,
                            "), of whose --memory ", FormatSize(of_it), " are free"))
      .Limit(absl::StrCat("memory_bytes=", of_it))
      .Hint(absl::StrCat("raise --memory of this worker, give ", gpu,
                         " a smaller share with --devices, or load with a smaller --kv-tokens"));
}

DeviceNeeds NeedsOfDevices(std::vector<DividingDevice> devices, const Footprint& of_one,
                           const StageSpec& spec, std::span<const StageTensor> needs,
                           const std::function<const BlobTensor&(const std::string& name)>& find) {
  DeviceNeeds all;
  all.devices = std::move(devices);
  const std::vector<RankOutputs> outputs =
      SplitOutputs(spec.model, SharesOf(StageDevicesOf(all.devices)));
  std::vector<RankFootprint> footprints;
  for (size_t rank = 0; rank < outputs.size(); ++rank) {
    footprints.emplace_back(of_one, spec.model,
                            RankOfStage{.outputs = outputs[rank],
                                        .first = rank == 0,
                                        .embeds = spec.embeds,
                                        .heads = spec.heads});
  }
  all.weight_bytes.resize(outputs.size());
  all.kv_bytes.resize(outputs.size());
  StagedWeights staged;
  for (const StageTensor& need : needs) {
    const BlobTensor& tensor = find(need.name);
    const bool in_layer = need.name.find("layers.") != std::string::npos;
    uint64_t on_all = 0;
    for (size_t rank = 0; rank < footprints.size(); ++rank) {
      const uint64_t bytes = footprints[rank].WeightBytes(need, tensor.dtype, tensor.blob.bytes,
                                                          QuantizeOf(spec.quantize, in_layer));
      all.weight_bytes[rank] += bytes;
      on_all += bytes;
    }
    staged.Add(need, tensor.dtype, tensor.blob.bytes, on_all);
  }
  all.staged_bytes = staged.MostBytes();
  for (size_t rank = 0; rank < footprints.size(); ++rank) {
    for (uint32_t group = 0; group < spec.kv_pages.size(); ++group) {
      all.kv_bytes[rank] +=
          spec.kv_pages[group] * footprints[rank].PageBytes(spec.model, spec.first_layer,
                                                            spec.last_layer, group, spec.kv_dtype);
    }
  }
  return all;
}

}  // namespace strata
