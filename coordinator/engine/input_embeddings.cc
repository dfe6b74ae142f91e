#include "coordinator/engine/input_embeddings.h"

#include <algorithm>

namespace strata {

std::span<const InputEmbedding> EmbeddingsWithin(const std::vector<InputEmbedding>& embeddings,
                                                 uint32_t position, uint32_t rows) {
  const auto before = [](const InputEmbedding& row, uint64_t at) { return row.position < at; };
  const auto begin = std::lower_bound(embeddings.begin(), embeddings.end(), position, before);
  const auto end = std::lower_bound(begin, embeddings.end(), uint64_t{position} + rows, before);
  return {begin, end};
}

uint64_t BytesOf(std::span<const InputEmbedding> embeddings) {
  uint64_t bytes = 0;
  for (const InputEmbedding& row : embeddings) {
    bytes += row.values.size();
  }
  return bytes;
}

}  // namespace strata
