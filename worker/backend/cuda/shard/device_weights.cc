#include "worker/backend/cuda/shard/device_weights.h"

#include <functional>
#include <utility>

#include "common/status.h"

namespace strata::cuda {
namespace {

// So that every panel begins on a line of the device's memory.
constexpr uint64_t kAlignment = 256;

// Places what it is given one behind another. Counts at first, with no memory; then copies.
class Placer {
 public:
  Placer(Device* device, uint8_t* memory) : device_(device), memory_(memory) {}

  uint64_t bytes() const { return at_; }
  const absl::Status& status() const { return status_; }

  // Null while it counts.
  const uint8_t* Place(const void* data, uint64_t bytes) {
    const uint64_t begin = (at_ + kAlignment - 1) / kAlignment * kAlignment;
    at_ = begin + bytes;
    if (memory_ == nullptr || bytes == 0 || !status_.ok()) {
      return nullptr;
    }
    status_ = device_->CopyIn(memory_ + begin, data, bytes);
    return memory_ + begin;
  }
  DeviceVector Place(const std::vector<float>& vector) {
    const uint8_t* const data = Place(vector.data(), vector.size() * sizeof(float));
    return {reinterpret_cast<const float*>(data), static_cast<uint32_t>(vector.size())};
  }
  Matrix Place(const cpu::PackedMatrix& matrix) {
    const cpu::PanelView& view = matrix.view();
    if (view.data == nullptr) {
      return {};
    }
    const std::span<const uint8_t> panels = matrix.packed();
    return {.format = view.format,
            .scale_dtype = view.scale_dtype,
            .group = view.group,
            .data = Place(panels.data(), panels.size()),
            .panel_bytes = view.panel_bytes,
            .outputs = static_cast<uint32_t>(view.outputs),
            .inputs = static_cast<uint32_t>(view.inputs)};
  }
  Matrix Place(const cpu::Linear& linear) {
    Matrix matrix = Place(linear.weight);
    matrix.bias = Place(linear.bias).data;
    return matrix;
  }
  // `of` gives the matrix of one of `items`.
  template <typename Items, typename Of>
  DeviceMatrices PlaceAll(const Items& items, const Of& of) {
    std::vector<Matrix> matrices;
    for (const auto& item : items) {
      matrices.push_back(Place(of(item)));
    }
    if (matrices.empty()) {
      return {};
    }
    const uint8_t* const all = Place(matrices.data(), matrices.size() * sizeof(Matrix));
    return {matrices[0], reinterpret_cast<const Matrix*>(all)};
  }

 private:
  Device* const device_;
  uint8_t* const memory_;
  uint64_t at_ = 0;
  absl::Status status_;
};

DeviceLayer PlaceLayer(const cpu::LayerWeights& from, Placer* placer) {
  const auto linear = [](const cpu::Linear& one) -> const cpu::Linear& { return one; };
  DeviceLayer to;
  to.attention_norm = placer->Place(from.attention_norm);
  to.after_attention_norm = placer->Place(from.after_attention_norm);
  to.q = placer->Place(from.q);
  to.k = placer->Place(from.k);
  to.v = placer->Place(from.v);
  to.o = placer->Place(from.o);
  to.q_norm = placer->Place(from.q_norm);
  to.k_norm = placer->Place(from.k_norm);
  to.sinks = placer->Place(from.sinks);
  to.query_latent = placer->Place(from.query_latent);
  to.kv_latent = placer->Place(from.kv_latent);
  to.query_latent_norm = placer->Place(from.query_latent_norm);
  to.kv_latent_norm = placer->Place(from.kv_latent_norm);
  to.key_heads = placer->PlaceAll(from.key_heads, linear);
  to.value_heads = placer->PlaceAll(from.value_heads, linear);
  to.mlp_norm = placer->Place(from.mlp_norm);
  to.after_mlp_norm = placer->Place(from.after_mlp_norm);
  to.gate = placer->Place(from.gate);
  to.up = placer->Place(from.up);
  to.down = placer->Place(from.down);
  to.router = placer->Place(from.mixture.router);
  to.corrections = placer->Place(from.mixture.corrections);
  const auto& experts = from.mixture.experts;
  to.expert_gate = placer->PlaceAll(
      experts, [](const cpu::ExpertWeights& one) -> const cpu::Linear& { return one.gate; });
  to.expert_up = placer->PlaceAll(
      experts, [](const cpu::ExpertWeights& one) -> const cpu::Linear& { return one.up; });
  to.expert_down = placer->PlaceAll(
      experts, [](const cpu::ExpertWeights& one) -> const cpu::Linear& { return one.down; });
  return to;
}

}  // namespace

absl::Status DeviceWeights::Upload(Device* device, const cpu::StageWeights& weights) {
  const auto place = [&](Placer* placer) {
    layers_.clear();
    for (const cpu::LayerWeights& layer : weights.layers) {
      layers_.push_back(PlaceLayer(layer, placer));
    }
    final_norm_ = placer->Place(weights.final_norm);
    head_ = placer->Place(weights.head);
    embedding_ = {};
    if (!weights.embedding.empty()) {
      const std::span<const uint8_t> rows = weights.embedding.packed();
      embedding_.table = placer->Place(rows.data(), rows.size());
      embedding_.dtype = weights.embedding.dtype();
    } else if (weights.embedding_panels.bytes() != 0) {
      embedding_.matrix = placer->Place(weights.embedding_panels);
    } else {
      embedding_.matrix = head_;  // Tied.
    }
  };
  Placer counts(device, nullptr);
  place(&counts);
  RETURN_IF_ERROR(memory_.Allocate(device, counts.bytes(), "the stage's weights"));
  Placer copies(device, memory_.as());
  place(&copies);
  return copies.status();
}

}  // namespace strata::cuda
