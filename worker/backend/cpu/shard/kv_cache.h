// KV memory of a stage: for every layer, all pages of its group.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_KV_CACHE_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_KV_CACHE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "common/limits.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/stage.h"

namespace strata::cpu {

// How one layer's pages lie. A page holds, for each KV head, K [head_dim][16 keys] (so that lanes
// are keys when scoring), then V [16 keys][head_dim rounded up to 16] (so that lanes are dimensions
// when summing), both in the KV dtype and beginning on cache lines. With latent vectors it
// holds [16 positions][LatentSpec::kept()]: the latent vector, then the rotated key. Of one head
// all pages lie together, then those of the next: attention reads a head's pages in turn, and
// memory gives most where they lie one behind the other.
struct KvLayout {
  size_t value_bytes = 0;  // From a head's K to its V.
  size_t head_bytes = 0;   // From a head's page to its next.
  size_t page_bytes = 0;   // Of all heads.

  static KvLayout Of(const AttentionSpec& attention, bool f16) {
    const size_t element = f16 ? 2 : 4;
    KvLayout layout;
    if (attention.latent.rank != 0) {
      layout.head_bytes = size_t{attention.latent.kept()} * kPageTokens * element;
      layout.page_bytes = layout.head_bytes;
      return layout;
    }
    layout.value_bytes =
        RoundUp(size_t{attention.head_dim} * kPageTokens * element, kCacheLineBytes);
    layout.head_bytes =
        layout.value_bytes +
        RoundUp(PaddedHeadDim(attention.head_dim) * kPageTokens * element, kCacheLineBytes);
    layout.page_bytes = layout.head_bytes * attention.kv_heads;
    return layout;
  }
};

// Query heads that attention computes as one: those of a KV head; of those that all see the same
// latent vectors as many as fit its lanes and divide them.
inline uint32_t HeadsAtOnce(const AttentionSpec& attention) {
  if (attention.latent.rank == 0) {
    return attention.heads / attention.kv_heads;
  }
  uint32_t heads = std::min(attention.heads, kLatentQueries);
  while (attention.heads % heads != 0) {
    --heads;
  }
  return heads;
}

class KvCache {
 public:
  static uint64_t Bytes(const StageSpec& spec, bool f16) {
    uint64_t bytes = 0;
    for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
      const AttentionSpec& attention = spec.model.layers[i].attention;
      bytes += KvLayout::Of(attention, f16).page_bytes * spec.kv_pages[attention.kv_group];
    }
    return bytes;
  }

  // Once.
  absl::Status Allocate(const StageSpec& spec, bool f16) {
    uint64_t bytes = 0;
    for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
      const AttentionSpec& attention = spec.model.layers[i].attention;
      const KvLayout layout = KvLayout::Of(attention, f16);
      const uint64_t page_count = spec.kv_pages[attention.kv_group];
      layers_.push_back({attention.kv_group, layout, page_count, bytes});
      bytes += layout.page_bytes * page_count;
    }
    return pages_.Allocate(bytes, "KV pages");
  }

  // `layer` counts from the stage's first.
  const KvLayout& layout(uint32_t layer) const { return layers_[layer].layout; }
  // The KV head's first page; page p is p * head_bytes behind it. With latent vectors there is one.
  uint8_t* pages(uint32_t layer, uint32_t head = 0) const { return PagesOf(layers_[layer], head); }

  void CopyPage(uint32_t group, PageId from, PageId to) {
    ForHeads(group, [=](uint8_t* pages, size_t bytes) {
      std::memcpy(pages + to * bytes, pages + from * bytes, bytes);
    });
  }

  // Of all layers of the group, one behind another: of each head what it has of the page.
  uint64_t page_bytes(uint32_t group) const {
    uint64_t bytes = 0;
    for (const Layer& layer : layers_) {
      bytes += layer.group == group ? layer.layout.page_bytes : 0;
    }
    return bytes;
  }
  void ReadPage(uint32_t group, PageId page, uint8_t* out) const {
    ForHeads(group, [=, &out](const uint8_t* pages, size_t bytes) {
      std::memcpy(out, pages + page * bytes, bytes);
      out += bytes;
    });
  }
  void WritePage(uint32_t group, PageId page, const uint8_t* in) {
    ForHeads(group, [=, &in](uint8_t* pages, size_t bytes) {
      std::memcpy(pages + page * bytes, in, bytes);
      in += bytes;
    });
  }

  uint64_t bytes() const { return pages_.bytes(); }

 private:
  struct Layer {
    uint32_t group = 0;
    KvLayout layout;
    uint64_t page_count = 0;
    uint64_t first_byte = 0;  // Of its pages in pages_.
  };

  // Calls `visit` with the first page of each head of the group's layers, and what it has of one.
  template <typename Visit>
  void ForHeads(uint32_t group, const Visit& visit) const {
    for (const Layer& layer : layers_) {
      const size_t bytes = layer.layout.head_bytes;
      const auto heads = static_cast<uint32_t>(layer.layout.page_bytes / bytes);
      for (uint32_t head = 0; layer.group == group && head < heads; ++head) {
        visit(PagesOf(layer, head), bytes);
      }
    }
  }

  uint8_t* PagesOf(const Layer& layer, uint32_t head) const {
    return pages_.as() + layer.first_byte + head * layer.page_count * layer.layout.head_bytes;
  }

  std::vector<Layer> layers_;
  AlignedBuffer pages_;  // Of all layers in one piece: more of it is large pages.
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_KV_CACHE_H_
