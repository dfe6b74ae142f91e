#include "coordinator/planner/node_devices.h"

#include <algorithm>

#include "common/check.h"
#include "common/footprint/device_limits.h"
#include "common/footprint/footprint.h"
#include "common/model/rank_outputs.h"
#include "strata/v1/types.pb.h"

namespace strata {

NodeDevices::NodeDevices(const std::vector<PlannerDevice>& devices, const PlannerModel& model) {
  STRATA_CHECK(devices.size() > 1 && model.of_rank != nullptr);
  for (const PlannerDevice& device : devices) {
    indices_.push_back(device.index);
    devices_.push_back(device.of_stage);
  }
  const std::vector<OutputRange> shares = SharesOf(devices_);
  std::vector<ModelSpec> own;  // With a rank's heads, wherever it is.
  for (const RankOutputs& outputs : SplitOutputs(model.spec, shares)) {
    weights_.push_back(model.of_rank(shares, own.size()));
    STRATA_CHECK(weights_.back().layer_bytes.size() == model.layer_bytes.size());
    own.push_back(WithHeadsOf(outputs, model.spec));
  }
  const v1::KvDtype dtype = model.kv_element_bytes == 4 ? v1::KV_DTYPE_F32 : v1::KV_DTYPE_F16;
  for (uint32_t l = 0; l < model.spec.layers.size(); ++l) {
    Page& page = pages_.emplace_back();
    page.group = model.spec.layers[l].attention.kv_group;
    for (const ModelSpec& spec : own) {
      page.bytes.push_back(CudaFootprint().PageBytes(spec, l, l, page.group, dtype));
    }
    page.counted = OfAllMemory(devices_, page.bytes);
  }
}

uint64_t NodeDevices::Counted(const std::function<uint64_t(const PlannerWeights&)>& of) const {
  std::vector<uint64_t> bytes;
  for (const PlannerWeights& weights : weights_) {
    bytes.push_back(of(weights));
  }
  return OfAllMemory(devices_, bytes);
}

uint64_t NodeDevices::CountedOfEach(uint64_t bytes) const {
  return OfAllMemory(devices_, std::vector<uint64_t>(devices_.size(), bytes));
}

uint32_t NodeDevices::Fullest(uint32_t begin, uint32_t end,
                              const std::function<uint64_t(uint32_t group)>& pages) const {
  std::vector<uint64_t> bytes;
  for (size_t rank = 0; rank < devices_.size(); ++rank) {
    const PlannerWeights& weights = weights_[rank];
    uint64_t& all = bytes.emplace_back(begin == 0 ? weights.embed_bytes : 0);
    all += end == pages_.size() ? weights.head_bytes : 0;
    for (uint32_t l = begin; l < end; ++l) {
      all += weights.layer_bytes[l] + pages(pages_[l].group) * pages_[l].bytes[rank];
    }
  }
  return indices_[FullestDevice(devices_, bytes)];
}

uint64_t NodeDevices::HostBesides(const PlannerModel& model) const {
  const auto more_than = [&](uint64_t one, const auto& of) {
    uint64_t all = 0;
    for (const PlannerWeights& weights : weights_) {
      all += of(weights);
    }
    return all > one ? all - one : uint64_t{0};
  };
  uint64_t layer = 0;
  for (size_t l = 0; l < model.layer_bytes.size(); ++l) {
    layer = std::max(layer, more_than(model.layer_bytes[l], [l](const PlannerWeights& weights) {
                       return weights.layer_bytes[l];
                     }));
  }
  const uint64_t embedding = more_than(
      model.embed_bytes, [](const PlannerWeights& weights) { return weights.embed_bytes; });
  const uint64_t head =
      more_than(model.head_bytes, [](const PlannerWeights& weights) { return weights.head_bytes; });
  // A tied head is another copy where it is divided.
  const uint64_t copy = model.spec.tied_head ? model.embed_bytes : 0;
  return (devices_.size() - 1) * kPinnedBytes + layer + embedding + head + copy;
}

}  // namespace strata
