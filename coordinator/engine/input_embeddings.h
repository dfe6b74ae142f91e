// The rows of a request that take the place of its prompt tokens' embeddings.
#ifndef STRATA_COORDINATOR_ENGINE_INPUT_EMBEDDINGS_H_
#define STRATA_COORDINATOR_ENGINE_INPUT_EMBEDDINGS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

struct InputEmbedding {
  uint32_t position = 0;
  std::string values;  // float32, little-endian, finite, as many as the hidden size.
  uint64_t link = 0;   // EmbeddingLink(values).
};

// Those at positions [position, position + rows). `embeddings` has ascending positions.
std::span<const InputEmbedding> EmbeddingsWithin(const std::vector<InputEmbedding>& embeddings,
                                                 uint32_t position, uint32_t rows);

uint64_t BytesOf(std::span<const InputEmbedding> embeddings);

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_INPUT_EMBEDDINGS_H_
