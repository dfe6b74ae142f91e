#include "worker/backend/cuda/shard/device_kv.h"

#include "common/status.h"
#include "worker/backend/cpu/shard/kv_cache.h"

namespace strata::cuda {

absl::Status DeviceKv::Allocate(Device* device, const StageSpec& spec) {
  memory_.Reset();  // First, so that old and new pages need not fit together.
  layers_.clear();
  f16_ = spec.kv_dtype != v1::KV_DTYPE_F32;
  uint64_t bytes = 0;
  for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
    const AttentionSpec& attention = spec.model.layers[i].attention;
    const cpu::KvLayout layout = cpu::KvLayout::Of(attention, f16_);
    const uint64_t pages = spec.kv_pages[attention.kv_group];
    layers_.push_back({.group = attention.kv_group,
                       .first_byte = bytes,
                       .page_count = pages,
                       .head_bytes = layout.head_bytes,
                       .value_bytes = layout.value_bytes,
                       .heads = static_cast<uint32_t>(layout.page_bytes / layout.head_bytes)});
    bytes += layout.page_bytes * pages;
  }
  return memory_.Allocate(device, bytes, "KV pages");
}

KvPages DeviceKv::pages(uint32_t layer) const {
  const Layer& one = layers_[layer];
  return {.data = memory_.as() + one.first_byte,
          .head_bytes = one.head_bytes,
          .heads_bytes = one.page_count * one.head_bytes,
          .value_bytes = one.value_bytes,
          .f16 = f16_};
}

absl::Status DeviceKv::CopyPage(Device* device, uint32_t group, PageId from, PageId to) const {
  for (const Layer& layer : layers_) {
    for (uint32_t head = 0; layer.group == group && head < layer.heads; ++head) {
      uint8_t* const pages =
          memory_.as() + layer.first_byte + head * layer.page_count * layer.head_bytes;
      RETURN_IF_ERROR(device->CopyWithin(pages + to * layer.head_bytes,
                                         pages + from * layer.head_bytes, layer.head_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace strata::cuda
