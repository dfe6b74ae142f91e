// A checkpoint folder as on the Hugging Face hub: config.json, generation_config.json,
// safetensors files, tokenizer files; or a GGUF file, which is all of these. Reading validates
// everything before it is used.
#ifndef STRATA_COMMON_CHECKPOINT_CHECKPOINT_H_
#define STRATA_COMMON_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/model/stored_matrix.h"

namespace strata {

class FileReader;

// Longer headers of safetensors files are refused, as the format says.
inline constexpr size_t kMaxSafetensorsHeaderBytes = 100'000'000;

// config.json (and generation_config.json, "" if there is none) to a spec. INVALID_ARGUMENT names
// the field that is wrong; UNIMPLEMENTED names what is not supported yet, and how it was written.
absl::StatusOr<ModelSpec> ParseModelConfig(std::string_view config_json,
                                           std::string_view generation_config_json);

// Where a tensor's bytes are.
struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  std::string file;     // Plain file name within the folder.
  uint64_t offset = 0;  // Of the first byte in the file.
  uint64_t bytes = 0;
};

// A checkpoint's files, validated; no weights are read.
struct Checkpoint {
  std::string path;  // The folder, of a .gguf file too.
  // Whether the folder is the checkpoint, or nothing in it but `weight_files` (GGUF).
  bool whole_folder = true;
  // Of a GGUF file: what ReadGgufModel writes.
  std::string config_json;
  std::string generation_config_json;  // "" when absent.
  ModelSpec spec;
  std::vector<TensorEntry> tensors;  // By name, ascending.
  std::vector<std::string> weight_files;
  std::vector<std::string> notes;  // For people: unexpected tensors and the like.

  const TensorEntry* Find(std::string_view name) const;
};

// Opens and validates a folder, or a .gguf file (of one that is split: any part), or a folder that
// has one model as such and no safetensors: the configuration, the headers of all weight files, the
// index, and names, dtypes and shapes of the tensors that the model needs. Symlinks are followed.
// Missing tensors are an error that names them (at most ten); so are tensors of a layer that would
// change its result but that the configuration does not know. Any other unexpected tensor is a
// note.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path);

// Which tensors a stage needs. `name` is as in the checkpoint, prefix and all.
struct StageTensor {
  std::string name;
  std::vector<uint64_t> shape;
  // That it may have; empty: floats, and of matrices blocks.
  std::vector<Dtype> dtypes = {};
  // Of the first of the tensors of a matrix that several hold, but for MLX's: all about it. The
  // others, which follow, are parts.
  std::optional<StoredMatrix> matrix = {};
  bool part = false;
  bool inputs_first = false;  // See MatrixShapeOf.
  // Whether its last two dimensions may lie the other way round.
  bool may_be_transposed = false;
  bool any_shape = false;
  // Whether a tensor of this shape is it; a single number has any number of dimensions.
  bool Fits(std::span<const uint64_t> other) const;
};
// Whether the checkpoint has a tensor.
using TensorExists = std::function<bool(const std::string& name)>;
// For layers [first, last], with embedding and/or final norm + head (the embedding again when
// tied). A matrix is quantized where the configuration says how and its scales exist.
std::vector<StageTensor> TensorsOf(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                                   bool embeds, bool heads, const TensorExists& exists = nullptr);

// Whether a tensor holds a matrix's weights, by its name; and whether workers keep them in fewer
// bits than floats have, so that they are not quantized again. `dtype`: that they are loaded from.
bool HoldsWeights(std::string_view name);
bool KeepsIntegers(const StageTensor& tensor, Dtype dtype);

// How a matrix is stored, for a numerics class: "bf16", "affine4g64", "gptq4g128". `tensor` is that
// with its weights.
std::string StoredFormat(const ModelSpec& spec, const StageTensor& tensor, Dtype dtype);

// Parses the header of one safetensors file: `header` is the JSON, `data_bytes` the size of what
// follows it, `data_start` the offset of the data in the file. Used by OpenCheckpoint and fuzzed.
absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(std::string_view header,
                                                                uint64_t data_bytes,
                                                                uint64_t data_start,
                                                                std::string_view file);

// The same of an open file, which errors call `name`: the tensors, names ascending.
// INVALID_ARGUMENT where the header is longer than `max_header_bytes`.
absl::StatusOr<std::vector<TensorEntry>> ReadSafetensorsHeader(
    const FileReader& file, const std::string& name,
    uint64_t max_header_bytes = kMaxSafetensorsHeaderBytes);

// cos then sin, each float32 [context, rotary_dim / 2], row-major. Made with our own sin and cos
// in double, so that every machine makes the same bits. `variant` is below rope.variants().
std::vector<float> MakeRotaryTables(const RopeSpec& rope, uint32_t context, uint32_t variant = 0);
// All that a model's layers turn by, see RopesOf.
std::vector<float> MakeRotaryTables(const ModelSpec& spec, uint32_t context);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_CHECKPOINT_H_
