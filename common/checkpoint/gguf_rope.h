// What a GGUF file says of how its rotation is scaled, as fields of config.json. Internal to the
// reader of GGUF files. Facts: conversion/*.py, src/llama-context.cpp and src/models/*.cpp of
// github.com/ggml-org/llama.cpp.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_ROPE_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_ROPE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/gguf_architecture.h"
#include "nlohmann/json_fwd.hpp"

namespace strata {

// The small tensors that frequencies are divided by; empty where the file has none.
struct GgufFactors {
  std::vector<float> all;  // rope_freqs: in every request.
  // LongRoPE: in requests that stay within the original context, and in longer ones.
  std::vector<float> within;
  std::vector<float> beyond;
};
// Where the tensor's values belong, or nullptr where it is none of these.
std::vector<float>* FactorsOf(std::string_view tensor, GgufFactors* factors);

// rope_scaling, or an object for each kind of layer in rope_parameters, and what queries grow by.
// `config` has rope_theta. `rotary_dim`: dimensions of a head that rotate; `context`: positions by
// context_length, which is the original context where no key says it. INVALID_ARGUMENT and
// UNIMPLEMENTED name the key or the tensor.
absl::Status WriteGgufRope(const GgufArchitecture& architecture, const GgufHeader& header,
                           const GgufFactors& factors, uint64_t rotary_dim, uint64_t context,
                           nlohmann::json* config);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_ROPE_H_
