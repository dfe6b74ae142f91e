// Where layers of a stage lie in a page of a KV group, as Shard::ReadPage has it.
#ifndef STRATA_WORKER_RUNNER_PAGE_LAYERS_H_
#define STRATA_WORKER_RUNNER_PAGE_LAYERS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "worker/backend/shard.h"
#include "worker/backend/stage.h"

namespace strata {

// Of the model, both inclusive.
struct LayerRange {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t count() const { return last - first + 1; }
  bool operator==(const LayerRange&) const = default;
};

// Those that both have; nullopt: none.
inline std::optional<LayerRange> CommonLayers(const LayerRange& a, const LayerRange& b) {
  const LayerRange common{std::max(a.first, b.first), std::min(a.last, b.last)};
  return common.first <= common.last ? std::optional(common) : std::nullopt;
}

struct PagePart {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0: none of the layers has the group.
};

// Of `layers`, which the stage has. nullopt: its layers of the group keep KV of different sizes,
// and these are only some of them.
inline std::optional<PagePart> PagePartOf(const StageSpec& spec, const Shard& shard, uint32_t group,
                                          const LayerRange& layers) {
  uint64_t all = 0;
  uint64_t before = 0;
  uint64_t wanted = 0;
  bool alike = true;
  std::optional<std::pair<uint64_t, uint32_t>> size;
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    const AttentionSpec& attention = spec.model.layers[layer].attention;
    if (attention.kv_group != group) {
      continue;
    }
    const std::pair of_layer(attention.KvNumbers(), attention.kv_heads);
    alike = alike && size.value_or(of_layer) == of_layer;
    size = of_layer;
    ++all;
    before += layer < layers.first ? 1 : 0;
    wanted += layer >= layers.first && layer <= layers.last ? 1 : 0;
  }
  const uint64_t page_bytes = shard.PageBytes(group);
  if (wanted == 0 || wanted == all) {
    return PagePart{0, wanted == 0 ? 0 : page_bytes};
  }
  if (!alike || page_bytes % all != 0) {
    return std::nullopt;
  }
  return PagePart{page_bytes / all * before, page_bytes / all * wanted};
}

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_PAGE_LAYERS_H_
