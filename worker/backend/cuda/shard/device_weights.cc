#include "worker/backend/cuda/shard/device_weights.h"

#include <functional>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace strata::cuda {
namespace {

constexpr uint64_t kAlignment = DeviceWeights::kAlignment;

// Copies what it is given one behind another to memory of the device.
class Placer {
 public:
  // From `at` on.
  Placer(Transfers* transfers, const DeviceBuffer& memory, uint64_t at)
      : transfers_(transfers), memory_(memory), at_(at) {}

  uint64_t at() const { return at_; }
  const absl::Status& status() const { return status_; }

  const uint8_t* Place(const void* data, uint64_t bytes) {
    const uint64_t begin = (at_ + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes == 0 || !status_.ok()) {
      return nullptr;
    }
    at_ = begin + bytes;
    STRATA_CHECK(at_ <= memory_.bytes());
    status_ = transfers_->In(memory_.as() + begin, data, bytes);
    return memory_.as() + begin;
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
  Transfers* const transfers_;
  const DeviceBuffer& memory_;
  uint64_t at_;
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

uint64_t DeviceWeights::ListBytes(const LayerSpec& layer) {
  constexpr uint64_t kExpertLists = 3;
  constexpr uint64_t kHeadLists = 2;
  const auto list = [](uint64_t matrices) {
    return (matrices * sizeof(Matrix) + kAlignment - 1) / kAlignment * kAlignment;
  };
  return kExpertLists * list(layer.mlp.experts) +
         kHeadLists * list(layer.attention.latent.rank != 0 ? layer.attention.heads : 0);
}

absl::Status DeviceWeights::Allocate(Device* device, uint64_t bytes) {
  return memory_.Allocate(device, bytes, "the stage's weights");
}

absl::Status DeviceWeights::Add(Transfers* transfers, const cpu::StageWeights& weights) {
  Placer placer(transfers, memory_, used_bytes_);
  for (const cpu::LayerWeights& layer : weights.layers) {
    layers_.push_back(PlaceLayer(layer, &placer));
  }
  if (!weights.final_norm.empty()) {
    final_norm_ = placer.Place(weights.final_norm);
    head_ = placer.Place(weights.head);
  }
  if (!weights.embedding.empty()) {
    const std::span<const uint8_t> rows = weights.embedding.packed();
    embedding_.table = placer.Place(rows.data(), rows.size());
    embedding_.dtype = weights.embedding.dtype();
  } else if (weights.embedding_panels.bytes() != 0) {
    embedding_.matrix = placer.Place(weights.embedding_panels);
  }
  used_bytes_ = placer.at();
  step_read_bytes_ += weights.StepReadBytes();
  return placer.status();
}

Embedding DeviceWeights::embedding() const {
  Embedding embedding = embedding_;
  if (embedding.table == nullptr && embedding.matrix.data == nullptr) {
    embedding.matrix = head_;  // Tied.
  }
  return embedding;
}

}  // namespace strata::cuda
