// What the keys of a GGUF file say of latent attention and of DeepSeek's kind of experts, as fields
// of config.json. Internal to the reader of GGUF files. Facts: conversion/deepseek.py and
// src/models/deepseek2.cpp of github.com/ggml-org/llama.cpp.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_LATENT_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_LATENT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/gguf_architecture.h"
#include "nlohmann/json_fwd.hpp"

namespace strata {

// Sizes of heads and ranks. Files since 2025 count the latent vector as the one head of keys, and
// have heads' own sizes under keys with "_mla"; older ones count all heads. `rotating`: dimensions
// of a head that rotate. INVALID_ARGUMENT names keys that contradict.
absl::Status WriteGgufLatent(const GgufArchitecture& architecture, const GgufHeader& header,
                             nlohmann::json* config, uint64_t* rotating);

// Which experts are chosen, what they count, which layers have none. Files of before mid-2025 say
// nothing of groups: there are none then.
absl::Status WriteGgufRouting(const GgufArchitecture& architecture, const GgufHeader& header,
                              nlohmann::json* config);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_LATENT_H_
