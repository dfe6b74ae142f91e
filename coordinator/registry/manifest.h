// A registered checkpoint: what its files held when they were digested, and what the model is.
#ifndef STRATA_COORDINATOR_REGISTRY_MANIFEST_H_
#define STRATA_COORDINATOR_REGISTRY_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file_reader.h"
#include "common/footprint/footprint.h"
#include "common/model/model_spec.h"
#include "strata/v1/types.pb.h"

namespace strata {

// A file of the folder, and its state when it was digested.
struct ManifestFile {
  std::string name;  // Plain.
  FileIdentity identity;
  std::string sha256;  // Lower-case hex, as all digests here. "": it was not digested.
  bool operator==(const ManifestFile&) const = default;
};

// A tensor: a byte range of a file.
struct ManifestTensor {
  std::string name;  // As the checkpoint has it, prefix and all.
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  std::string file;
  uint64_t offset = 0;  // Of the first byte in the file.
  uint64_t bytes = 0;
  std::string sha256;  // Of the bytes.
  bool operator==(const ManifestTensor&) const = default;
};

// Const once made; share it by shared_ptr<const ModelManifest>.
struct ModelManifest {
  std::string path;                     // The folder, absolute.
  std::vector<ManifestFile> files;      // By name.
  std::vector<ManifestTensor> tensors;  // By name; those that the model does not use too.
  std::string weights_digest;           // WeightsDigest(tensors).
  std::string config_json;
  std::string generation_config_json;  // "" when absent.
  bool has_tokenizer = false;          // See tokenizer_file.h and FindManifestGguf.
  std::string chat_template;           // Source; "" when there is none.
  std::string chat_template_file;      // The file that it is in; "" likewise.
  std::string bos_token;               // As tokenizer_config.json has them; "" when absent.
  std::string eos_token;
  // All that chat templates get as variables, these two among them; see ChatTemplateSource. Empty
  // in manifests from before it was there, and of GGUF files.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::vector<std::string> notes;  // For people.
  ModelSpec spec;                  // Of config_json and generation_config_json.
  // What it is registered as, which its JSON does not say; "": not yet.
  std::string model;
  bool ours = false;  // Its files came by upload or pull, and go with it.

  // What was registered: the folder, or a .gguf file where nothing else of its folder counts.
  std::string Source() const;
  const ManifestFile* FindFile(std::string_view name) const;
  const ManifestTensor* FindTensor(std::string_view name) const;
  // For the common TensorsOf. The manifest outlives it.
  TensorExists Exists() const {
    return [this](const std::string& name) { return FindTensor(name) != nullptr; };
  }
};

// SHA-256 over the tensors in the order of their names: for each a line
//   NAME '\t' DTYPE '\t' dimensions joined by ',' '\t' SHA-256 '\n'
// with backslash, tab and newline in names escaped.
std::string WeightsDigest(const std::vector<ManifestTensor>& tensors);

// One JSON document, and back. Reading validates, and parses the configuration again:
// INVALID_ARGUMENT (INVALID_MANIFEST) says what is wrong.
std::string ManifestToJson(const ModelManifest& manifest);
absl::StatusOr<ModelManifest> ManifestFromJson(std::string_view json);

// The contents of a file of the folder, digested again. NOT_FOUND when the manifest has none of
// that name; FAILED_PRECONDITION (MODEL_CHANGED) when it is not what was registered.
absl::StatusOr<std::string> ReadManifestFile(const ModelManifest& manifest, std::string_view name);

// The path of the .gguf file whose own tokenizer is the model's: the first one, where no
// tokenizer.json stands beside it. "": there is none. FAILED_PRECONDITION (MODEL_CHANGED) when it
// is not what was registered, by its size and time: see FileTrust.
absl::StatusOr<std::string> FindManifestGguf(const ModelManifest& manifest);
// The file that FindManifestGguf looks at, or null.
const ManifestFile* ManifestGguf(const ModelManifest& manifest);

// What the planner wants to know of weights and KV: as stored, or as workers quantize them.
struct WeightAccount {
  std::vector<uint64_t> layer_bytes;         // Of each layer, all experts.
  std::vector<uint64_t> layer_read_bytes;    // What a token reads of them: its own experts.
  std::vector<uint64_t> layer_source_bytes;  // SourceBytes of each layer's largest tensor.
  uint64_t end_source_bytes = 0;             // Of what no layer has.
  uint64_t embed_bytes = 0;                  // What the first stage holds besides layers.
  uint64_t head_bytes = 0;                   // Final norm and head (the embedding again when tied).
  uint64_t total_bytes = 0;                  // Of the tensors that the model uses, each once.
  // Formats of the layers' matrices and of the head: "bf16", "affine4g64", "int8"; mixed ones
  // joined by '+', the one with most bytes first.
  std::string layer_format;
  std::string head_format;
};
// Bytes are those that a device of this footprint takes; formats are the same on all.
WeightAccount AccountWeights(const ModelManifest& manifest,
                             v1::Quantize quantize = v1::QUANTIZE_NONE,
                             const Footprint& footprint = CpuFootprint());

// Whether workers keep some of the matrices as integers, just as they are stored; and whether
// others, of floats, are left for --quantize.
struct StoredKinds {
  bool integers = false;
  bool quantizable = false;
};
StoredKinds StoredKindsOf(const ModelManifest& manifest);

// Bytes of KV that one token needs over all layers and groups.
uint64_t TotalKvBytesPerToken(const ModelSpec& spec, uint32_t element_bytes);

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_MANIFEST_H_
