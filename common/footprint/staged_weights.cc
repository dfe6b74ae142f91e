#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/footprint/footprint.h"
#include "common/model/stored_matrix.h"

namespace strata {
namespace {

// Of what a tensor's matrices are made in memory, where they are not read as they are stored.
uint64_t MadeBytes(const StageTensor& tensor) {
  if (!tensor.matrix.has_value()) {
    return 0;
  }
  const StoredMatrix& matrix = *tensor.matrix;
  return matrix.Kept().kind == KeptForm::Kind::kFloats
             ? matrix.matrices * matrix.outputs * matrix.inputs * sizeof(float)
             : matrix.KeptBytes();
}

}  // namespace

uint64_t SourceBytes(const StageTensor& tensor, uint64_t stored_bytes) {
  return std::max(stored_bytes, MadeBytes(tensor));
}

void StagedWeights::Add(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                        uint64_t weight_bytes) {
  largest_source_ = std::max(largest_source_, SourceBytes(tensor, stored_bytes));
  constexpr std::string_view kLayers = "layers.";
  const std::string_view name = tensor.name;
  if (const size_t at = name.find(kLayers); at != std::string_view::npos) {
    uint64_t layer = 0;
    std::from_chars(name.data() + at + kLayers.size(), name.data() + name.size(), layer);
    layers_[layer] += weight_bytes;
  } else if (name.find("embed_tokens") != std::string_view::npos) {
    embedding_bytes_ += weight_bytes;
  } else {
    head_bytes_ += weight_bytes;
  }
}

uint64_t StagedWeights::MostBytes() const {
  uint64_t most = 0;
  for (auto layer = layers_.begin(); layer != layers_.end(); ++layer) {
    most =
        std::max(most, layer->second + (layer == layers_.begin() ? embedding_bytes_ : uint64_t{0}) +
                           (std::next(layer) == layers_.end() ? head_bytes_ : uint64_t{0}));
  }
  // A tied head is the embedding, and comes last.
  if (!layers_.empty()) {
    most = std::max(most, layers_.rbegin()->second + embedding_bytes_);
  }
  return most + largest_source_;
}

}  // namespace strata
