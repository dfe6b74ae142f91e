// What a GGUF file says of its model, in the words of a Hugging Face checkpoint: a config.json that
// ParseModelConfig reads, and tensors under that checkpoint's names.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_MODEL_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_MODEL_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/gguf.h"

namespace strata {

// A folder that has one of these has its weights there.
inline constexpr char kSafetensorsName[] = "model.safetensors";
inline constexpr char kSafetensorsIndexName[] = "model.safetensors.index.json";

// The files of one model among a folder's names, ascending: the only .gguf file, or the parts
// "NAME-00001-of-00003.gguf" of the only one that is split; projectors (mmproj*) do not count.
// Empty where there is none, or weights in safetensors; INVALID_ARGUMENT where there are several
// models, or a part is missing.
absl::StatusOr<std::vector<std::string>> GgufFilesOf(const std::vector<std::string>& names);
// Of the model that `file`, one of the names, is or is a part of.
absl::StatusOr<std::vector<std::string>> GgufPartsOf(const std::string& file,
                                                     const std::vector<std::string>& names);
// "NAME" of "NAME.gguf" and of "NAME-00001-of-00003.gguf".
std::string GgufModelName(std::string_view file);

struct GgufModel {
  std::string config_json;
  std::string generation_config_json;
  std::vector<TensorEntry> tensors;
};
// Reads the headers of a model's files in `folder`, of which the first has the key-values. Errors
// name the file, and the key or tensor; UNIMPLEMENTED what is not supported yet.
absl::StatusOr<GgufModel> ReadGgufModel(const std::string& folder,
                                        const std::vector<std::string>& files);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_MODEL_H_
