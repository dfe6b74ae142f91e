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

// ggml's numbers in expert_gating_func.
inline constexpr uint32_t kSoftmaxGating = 1;
inline constexpr uint32_t kSigmoidGating = 2;

struct GgufArchitecture {
  const char* name;  // general.architecture; its keys begin so.
  const char* model_type;
  bool pairs = false;                 // Rows of q and k are stored for the rotation of neighbours.
  const char* mlp_norm = "ffn_norm";  // The norm of what enters the MLP.
  // Gemma's sizes of so many layers multiply scores by (hidden_size / heads)^-1/2, the others by
  // head_dim^-1/2: no key says it.
  uint32_t wide_layers = 0;
  bool sections = false;       // rope.dimension_sections, which say nothing of a model of text.
  bool yarn_truncates = true;  // YaRN's pairs are whole numbers; no key says it either.
  // Of several rows of a name, that of files with this expert_gating_func, and that of files with
  // this key. 0 and null: of any.
  uint32_t gating = 0;
  uint32_t absent_gating = kSoftmaxGating;  // What a file without expert_gating_func has.
  const char* with_key = nullptr;
  // Keys that it reads and that are refused elsewhere, without its name, between spaces.
  const char* reads = "";
  // What rope.scaling.yarn_log_multiplier is of an mscale_all_dim of 1; 0: there is none.
  double yarn_log_unit = 0;
  const Family* family = nullptr;

  bool mixture() const { return family->experts.experts_field != nullptr; }
  bool Reads(std::string_view key) const;
  std::string Key(std::string_view name) const;
};

// By general.architecture, and by expert_count, expert_gating_func and `with_key` where a name
// stands for several families. UNIMPLEMENTED names what there is no row for.
absl::StatusOr<GgufArchitecture> FindGgufArchitecture(const GgufHeader& header);

// The layers of the decoder: those of block_count that do not guess further tokens
// (nextn_predict_layers). 0 where the keys do not say it.
uint64_t GgufLayers(const GgufArchitecture& architecture, const GgufHeader& header);
// Whether a tensor is of a layer behind so many.
bool IsBehindGgufLayers(std::string_view tensor, uint64_t layers);

// The name in the Hugging Face checkpoint of a tensor. UNIMPLEMENTED names one that the
// architecture does not have, and of experts also the key without which there are none.
absl::StatusOr<std::string> CheckpointName(const GgufArchitecture& architecture,
                                           std::string_view tensor);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_ARCHITECTURE_H_
