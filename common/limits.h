// Limits that hold everywhere. What a user may want to change is a flag; these are not.
#ifndef STRATA_COMMON_LIMITS_H_
#define STRATA_COMMON_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace strata {

// Tokens of one KV page, on every backend and in every ledger.
inline constexpr uint32_t kPageTokens = 16;

// A frame travels in parts of at most this much data.
inline constexpr size_t kFramePartBytes = 256 * 1024;
// The largest frame that is accepted: 4096 rows of hidden size 16384, and the header.
inline constexpr size_t kMaxFrameBytes = size_t{320} << 20;
inline constexpr size_t kMaxFrameHeaderBytes = size_t{32} << 20;

// Weight chunks on the wire.
inline constexpr size_t kBlobChunkBytes = 256 * 1024;

inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr size_t kMaxStopIds = 1024;  // End tokens of a model.
inline constexpr uint32_t kMaxTopLogprobs = 100;
inline constexpr size_t kMaxLogitBias = 4096;
// Of input embeddings of one request: its message must stay below what gRPC takes.
inline constexpr size_t kMaxInputEmbeddingBytes = size_t{3584} << 10;
// Of a step's; its header must stay below kMaxFrameHeaderBytes.
inline constexpr size_t kMaxStepEmbeddingBytes = size_t{16} << 20;
// Token masks that a last stage keeps.
inline constexpr uint32_t kMaxMaskSlots = 256;
// Of models whose answers may be held to constraints: so that the masks of a step have room in a
// frame's header.
inline constexpr uint32_t kMaxMaskedVocab = 1u << 19;
// Replays of one session on fenced-off KV before the client sees the error.
inline constexpr int kMaxReplays = 3;

// Positions fit in 31 bits everywhere.
inline constexpr uint32_t kMaxContextTokens = 1u << 30;

// Largest checkpoint values that are believed.
inline constexpr uint32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxHiddenSize = 1u << 18;
inline constexpr uint32_t kMaxVocabSize = 1u << 24;

}  // namespace strata

#endif  // STRATA_COMMON_LIMITS_H_
