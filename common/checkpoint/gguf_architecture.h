// The architectures of GGUF files, as data: what keys and tensors of each are called, and how they
// depart from the family of models that it is. Facts: the conversion scripts and the loaders of
// github.com/ggml-org/llama.cpp. Internal to the reader of GGUF files.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_ARCHITECTURE_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_ARCHITECTURE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/checkpoint/family_config.h"
#include "common/checkpoint/gguf.h"

namespace strata {

struct GgufArchitecture {
  const char* name;  // general.architecture; its keys begin so.
  const char* model_type;
  bool pairs = false;                 // Rows of q and k are stored for the rotation of neighbours.
  const char* mlp_norm = "ffn_norm";  // The norm of what enters the MLP.
  // Gemma's sizes of so many layers multiply scores by (hidden_size / heads)^-1/2, the others by
  // head_dim^-1/2: no key says it.
  uint32_t wide_layers = 0;
  bool yarn_truncates = true;  // YaRN's pairs are whole numbers; no key says it either.
  const Family* family = nullptr;

  bool mixture() const { return family->experts.experts_field != nullptr; }
  std::string Key(std::string_view name) const;
};

// By general.architecture, and by expert_count where a name stands for dense models and for
// mixtures. UNIMPLEMENTED names what there is no row for.
absl::StatusOr<GgufArchitecture> FindGgufArchitecture(const GgufHeader& header);

// The name in the Hugging Face checkpoint of a tensor. UNIMPLEMENTED names one that the
// architecture does not have, and of experts also the key without which there are none.
absl::StatusOr<std::string> CheckpointName(const GgufArchitecture& architecture,
                                           std::string_view tensor);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_ARCHITECTURE_H_
