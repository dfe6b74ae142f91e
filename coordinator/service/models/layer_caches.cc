#include "coordinator/service/models/layer_caches.h"

#include <map>
#include <string>

#include "common/layer_weights.h"
#include "common/model/numerics_class.h"

namespace strata {

std::vector<LayerContent> LayersOf(const DeployedModel& model, std::string_view numerics_class) {
  std::vector<LayerContent> layers;
  const auto count = static_cast<uint32_t>(model.spec().layers.size());
  for (uint32_t layer = 0; layer < count; ++layer) {
    const bool embeds = layer == 0;
    const bool heads = layer + 1 == count;
    std::map<std::string, uint64_t> tensors;
    for (const v1::TensorBlob& tensor : model.StageTensors(layer, layer, embeds, heads)) {
      tensors[tensor.sha256()] = tensor.bytes();
    }
    LayerContent& content = layers.emplace_back();
    std::vector<std::string> digests;
    for (const auto& [digest, bytes] : tensors) {
      digests.push_back(digest);
      content.blobs.emplace_back(DigestPrefix(digest), bytes);
    }
    content.key = DigestPrefix(LayerWeightsKey(ClassOfLayers(numerics_class, layer, layer), embeds,
                                               heads, std::move(digests)));
  }
  return layers;
}

NodeCaches CachesOf(const std::vector<LayerContent>& layers, const std::vector<PlannerNode>& nodes,
                    const WeightHolders& holders) {
  NodeCaches caches;
  for (const PlannerNode& node : nodes) {
    std::vector<CachedLayer>& cached = caches[node.name];
    for (const LayerContent& layer : layers) {
      const bool packed = holders.HasLayer(node.name, layer.key);
      cached.push_back({packed ? 0 : holders.MissingBytes(node.name, layer.blobs), packed});
    }
  }
  return caches;
}

}  // namespace strata
