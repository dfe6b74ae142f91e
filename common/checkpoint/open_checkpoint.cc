// Opening a checkpoint folder: everything is checked before anything is used.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/decoder_names.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/gguf_model.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/quantization_config.h"
#include "common/checkpoint/tensor_fields.h"
#include "common/checkpoint/tied_head.h"
#include "common/limits.h"
#include "common/model/block_formats.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "headers are read as they lie");

constexpr size_t kMaxNamed = 10;
constexpr uint64_t kMaxBiasBytes = uint64_t{1} << 20;

// At most ten of them, for a message.
std::string SomeNames(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i) {
    shown.push_back(Quoted(names[i]));
  }
  std::string text = absl::StrJoin(shown, ", ");
  if (names.size() > kMaxNamed) {
    absl::StrAppend(&text, " and ", names.size() - kMaxNamed, " more");
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) {
    const int error = errno;
    struct stat info;
    if (error == ENOTDIR && stat(path.c_str(), &info) == 0) {
      return Error(absl::StatusCode::kInvalidArgument, "NOT_A_FOLDER", path + " is not a folder")
          .Hint("give the folder that holds config.json, or a .gguf file");
    }
    return Error(
        error == EACCES ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kNotFound,
        "NO_CHECKPOINT", absl::StrCat("cannot open folder ", path, ": ", strerror(error)));
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder.get())) {
    names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

absl::StatusOr<std::vector<TensorEntry>> ReadHeader(const std::string& folder,
                                                    const std::string& name) {
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(folder + "/" + name));
  return ReadSafetensorsHeader(file, name);
}

// tensor -> file out of the index; "file" is a plain name of the folder.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& folder) {
  const auto fail = [](const std::string& problem) {
    return Error(absl::StatusCode::kInvalidArgument, "INVALID_INDEX",
                 absl::StrCat(kSafetensorsIndexName, ": ", problem));
  };
  ASSIGN_OR_RETURN(
      const std::string text,
      ReadSmallFile(absl::StrCat(folder, "/", kSafetensorsIndexName), kMaxSafetensorsHeaderBytes));
  ASSIGN_OR_RETURN(const json index, ParseJsonObject(text, kSafetensorsIndexName, "INVALID_INDEX",
                                                     kMaxSafetensorsHeaderBytes));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return fail("has no weight_map of tensors to files");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return fail("weight_map entry " + Quoted(tensor) + " is not a file name");
    }
    const auto& name = file.get_ref<const std::string&>();
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
        !absl::EndsWith(name, ".safetensors")) {
      return fail(absl::StrCat("weight_map entry ", Quoted(tensor), " names ", Quoted(name),
                               ", not a safetensors file of the folder"));
    }
    files[tensor] = name;
  }
  return files;
}

// Index and files have to name the same tensors, each in the same file.
absl::Status CheckIndex(const std::map<std::string, std::string>& index,
                        const std::vector<TensorEntry>& tensors) {
  std::set<std::string_view> found;
  std::vector<std::string> unexpected;
  for (const TensorEntry& tensor : tensors) {
    found.insert(tensor.name);
    const auto entry = index.find(tensor.name);
    if (entry == index.end()) {
      unexpected.push_back(tensor.name);
    } else if (entry->second != tensor.file) {
      return Error(
          absl::StatusCode::kInvalidArgument, "INVALID_INDEX",
          absl::StrCat(kSafetensorsIndexName, " says that tensor ", Quoted(tensor.name), " is in ",
                       Quoted(entry->second), ", but it is in ", Quoted(tensor.file)));
    }
  }
  if (!unexpected.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "INVALID_INDEX",
                 absl::StrCat("the files hold ", unexpected.size(), " tensors that ",
                              kSafetensorsIndexName, " does not name: ", SomeNames(unexpected)));
  }
  std::vector<std::string> missing;
  for (const auto& [name, file] : index) {
    if (!found.contains(name)) {
      missing.push_back(name);
    }
  }
  if (!missing.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "MISSING_TENSORS",
                 absl::StrCat(kSafetensorsIndexName, " names ", missing.size(),
                              " tensors that the files do not hold: ", SomeNames(missing)))
        .Hint("fetch the checkpoint again");
  }
  return absl::OkStatus();
}

// Sorted by name; no name twice.
absl::Status SortTensors(std::vector<TensorEntry>* tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors->size(); ++i) {
    const TensorEntry& a = (*tensors)[i - 1];
    const TensorEntry& b = (*tensors)[i];
    if (a.name == b.name) {
      return Error(absl::StatusCode::kInvalidArgument, "INVALID_SAFETENSORS",
                   absl::StrCat("tensor ", Quoted(a.name), " is in ", Quoted(a.file), " and in ",
                                Quoted(b.file)));
    }
  }
  return absl::OkStatus();
}

Error NoWeights(const std::string& path, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".pt") ||
        absl::EndsWith(name, ".pth")) {
      return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_FORMAT",
                   absl::StrCat("weights as in ", Quoted(name),
                                " are not supported: unpickling runs code"))
          .Hint("use the checkpoint's safetensors files");
    }
  }
  return Error(
      absl::StatusCode::kNotFound, "NO_WEIGHTS",
      absl::StrCat(path, " has neither ", kSafetensorsName, " nor ", kSafetensorsIndexName));
}

absl::Status ReadWeightHeaders(const std::vector<std::string>& names, Checkpoint* checkpoint) {
  const std::string& path = checkpoint->path;
  const bool sharded = Contains(names, kSafetensorsIndexName);
  std::map<std::string, std::string> index;
  std::set<std::string> files;
  if (sharded) {
    ASSIGN_OR_RETURN(index, ReadIndex(path));
    for (const auto& [tensor, file] : index) {
      files.insert(file);
    }
  } else if (Contains(names, kSafetensorsName)) {
    files.insert(kSafetensorsName);
  } else {
    return NoWeights(path, names);
  }
  for (const std::string& file : files) {
    if (!Contains(names, file)) {
      return Error(absl::StatusCode::kNotFound, "MISSING_FILE",
                   absl::StrCat(kSafetensorsIndexName, " names ", Quoted(file),
                                ", which is not there"))
          .Hint("fetch the checkpoint again");
    }
    ASSIGN_OR_RETURN(std::vector<TensorEntry> tensors, ReadHeader(path, file));
    std::move(tensors.begin(), tensors.end(), std::back_inserter(checkpoint->tensors));
  }
  RETURN_IF_ERROR(SortTensors(&checkpoint->tensors));
  if (sharded) {
    RETURN_IF_ERROR(CheckIndex(index, checkpoint->tensors));
  }
  checkpoint->weight_files.assign(files.begin(), files.end());
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".safetensors") && !files.contains(name)) {
      checkpoint->notes.push_back("file " + Quoted(name) + " is not part of the weights; ignored");
    }
  }
  return absl::OkStatus();
}

// Whether a layer would compute something else with this tensor, had the configuration named it:
// biases and norms of its parts. `name` is below "model.layers.N.".
bool ChangesLayer(std::string_view name) {
  return absl::EndsWith(std::string(name), ".bias") ||
         absl::StrContains(std::string(name), "norm") ||
         absl::EndsWith(std::string(name), "_scale") ||
         absl::EndsWith(std::string(name), "sinks") || absl::EndsWith(std::string(name), "_bias") ||
         absl::StrContains(std::string(name), "lora");
}

// Layers that the configuration says are no part of the decoder: they guess further tokens.
uint32_t GuessingLayers(const std::string& config_json) {
  const auto config =
      ParseJsonObject(config_json, "config.json", "INVALID_CONFIG", kMaxConfigBytes);
  if (!config.ok()) {
    return 0;
  }
  FieldReader reader(&*config, "");
  return static_cast<uint32_t>(reader.Uint("num_nextn_predict_layers", 0, kMaxLayers, 0));
}

// Whether the tensor is of a layer behind `layers`.
bool IsBehind(const ModelSpec& spec, std::string_view name, size_t layers) {
  const std::string prefix = spec.tensor_prefix + "model.layers.";
  if (!name.starts_with(prefix)) {
    return false;
  }
  name.remove_prefix(prefix.size());
  uint32_t layer = 0;
  return absl::SimpleAtoi(absl::string_view(name.data(), std::min(name.find('.'), name.size())),
                          &layer) &&
         layer >= layers;
}

// Tensors beside those of quantized matrices that say nothing new: shapes, zeros that are none, and
// how activations were to be quantized.
bool IsBesideMatrix(const ModelSpec& spec, const std::string& name) {
  if (!spec.quantization.has_value()) {
    return false;
  }
  bool packed = false;  // compressed-tensors', and others like it.
  bool floats = false;
  spec.quantization->ForSchemes([&](const StoredScheme& scheme) {
    packed = packed || scheme.method == QuantizationMethod::kPacked;
    floats = floats || (scheme.method >= QuantizationMethod::kIntegers &&
                        scheme.method != QuantizationMethod::kBitsAndBytes);
  });
  const auto ends = [&](std::string_view suffix) {
    return std::string_view(name).ends_with(suffix);
  };
  if (spec.quantization->method == QuantizationMethod::kBitsAndBytes) {
    return ends(".weight_format");
  }
  return ((packed || floats) &&
          (ends(".weight_shape") || ends(".input_scale") || ends(".activation_scale") ||
           ends(".input_zero_point") || ends(".input_global_scale"))) ||
         (floats && ends(".weight_zero_point"));
}

// Whether a tensor is the scale of keys or values in a quantized KV cache, which are activations.
bool IsOfKvCache(const ModelSpec& spec, const std::string& name) {
  return spec.quantization.has_value() &&
         (absl::EndsWith(name, ".k_scale") || absl::EndsWith(name, ".v_scale"));
}

// The rest of "model.layers.N." for a layer that the model has, or "".
std::string_view WithinLayer(const ModelSpec& spec, std::string_view name) {
  const std::string prefix = spec.tensor_prefix + "model.layers.";
  if (!name.starts_with(prefix)) {
    return {};
  }
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  uint32_t layer = 0;
  if (dot == std::string_view::npos ||
      !absl::SimpleAtoi(absl::string_view(name.data(), dot), &layer) ||
      layer >= spec.layers.size()) {
    return {};
  }
  return name.substr(dot + 1);
}

// " (by FIELD, FIELD)", or "".
std::string ByFields(const std::set<std::string>& fields) {
  return fields.empty() ? "" : absl::StrCat(" (by ", absl::StrJoin(fields, ", "), ")");
}

absl::Status CheckOneTensor(const Checkpoint& checkpoint, const StageTensor& wanted,
                            const TensorEntry& found) {
  const bool floats = found.dtype == Dtype::kF32 || found.dtype == Dtype::kF16 ||
                      found.dtype == Dtype::kBF16 ||
                      (IsBlocks(found.dtype) && wanted.shape.size() >= 2);
  const bool right = wanted.dtypes.empty() ? floats
                                           : std::find(wanted.dtypes.begin(), wanted.dtypes.end(),
                                                       found.dtype) != wanted.dtypes.end();
  if (!right) {
    const bool quantized = !floats && !IsBlocks(found.dtype);
    return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_DTYPE",
                 absl::StrCat("dtype \"", DtypeName(found.dtype), "\" of tensor ",
                              Quoted(found.name), " is not supported yet",
                              !quantized ? ""
                              : checkpoint.spec.quantization.has_value()
                                  ? " in the way that quantization_config says"
                                  : " without a quantization_config that says how"));
  }
  if (!wanted.Fits(found.shape)) {
    return Error(absl::StatusCode::kInvalidArgument, "WRONG_SHAPE",
                 absl::StrCat("tensor ", Quoted(found.name), " has shape [",
                              absl::StrJoin(found.shape, ", "), "]; the configuration needs [",
                              absl::StrJoin(wanted.shape, ", "), "]",
                              ByFields(FieldsOfSize(checkpoint, found.name))));
  }
  return absl::OkStatus();
}

// Whether a tensor is a bias of zeros, as AutoGPTQ wrote them for matrices that have none.
absl::StatusOr<bool> IsBiasOfZeros(const Checkpoint& checkpoint, const TensorEntry& tensor) {
  const ModelSpec& spec = checkpoint.spec;
  if (!spec.quantization.has_value() || spec.quantization->method != QuantizationMethod::kGptq ||
      !absl::EndsWith(tensor.name, ".bias") || tensor.bytes > kMaxBiasBytes) {
    return false;
  }
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(checkpoint.path + "/" + tensor.file));
  std::string bytes(tensor.bytes, '\0');
  RETURN_IF_ERROR(file.ReadAt(tensor.offset, bytes.data(), bytes.size()));
  return bytes.find_first_not_of('\0') == std::string::npos;
}

absl::Status CheckTensors(Checkpoint* checkpoint) {
  const ModelSpec& spec = checkpoint->spec;
  const auto last = static_cast<uint32_t>(spec.layers.size() - 1);
  const std::vector<StageTensor> wanted =
      TensorsOf(spec, 0, last, true, true,
                [&](const std::string& name) { return checkpoint->Find(name) != nullptr; });
  std::set<std::string_view> known;
  std::vector<std::string> missing;
  absl::Status wrong;
  for (const StageTensor& tensor : wanted) {
    known.insert(tensor.name);
    const TensorEntry* found = checkpoint->Find(tensor.name);
    if (found == nullptr) {
      missing.push_back(tensor.name);
    } else if (wrong.ok()) {
      wrong = CheckOneTensor(*checkpoint, tensor, *found);
    }
  }
  const size_t layers = spec.layers.size() + GuessingLayers(checkpoint->config_json);
  std::vector<std::string> unexpected;
  std::vector<std::string> changing;
  std::vector<std::string> behind;
  size_t of_cache = 0;
  for (const TensorEntry& tensor : checkpoint->tensors) {
    if (IsOfKvCache(spec, tensor.name)) {
      ++of_cache;
    } else if (!known.contains(tensor.name) && !IsBesideMatrix(spec, tensor.name)) {
      ASSIGN_OR_RETURN(const bool zeros, IsBiasOfZeros(*checkpoint, tensor));
      const bool changes = !zeros && ChangesLayer(WithinLayer(spec, tensor.name));
      auto& names = IsBehind(spec, tensor.name, layers) ? behind : changes ? changing : unexpected;
      names.push_back(tensor.name);
    }
  }
  RETURN_IF_ERROR(wrong);
  if (!missing.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "MISSING_TENSORS",
                 absl::StrCat(missing.size(), " tensors are missing",
                              ByFields(FieldsBehind(*checkpoint, missing)), ": ",
                              SomeNames(missing), unexpected.empty() ? "" : "; unexpected are ",
                              unexpected.empty() ? "" : SomeNames(unexpected)));
  }
  if (!behind.empty()) {
    return Error(
        absl::StatusCode::kInvalidArgument, "MORE_LAYERS",
        absl::StrCat("num_hidden_layers is ", spec.layers.size(),
                     spec.layers.back().mlp.shared_ffn != 0
                         ? absl::StrCat(", num_nextn_predict_layers ", layers - spec.layers.size())
                         : "",
                     ", and the weights have more: ", SomeNames(behind)));
  }
  if (!changing.empty()) {
    return Error(absl::StatusCode::kUnimplemented, "UNEXPECTED_TENSORS",
                 absl::StrCat("tensors that config.json does not know",
                              ByFields(FieldsBehind(*checkpoint, changing)),
                              " are not supported yet: ", SomeNames(changing)));
  }
  if (of_cache != 0) {
    checkpoint->notes.push_back(
        absl::StrCat(of_cache,
                     " scales of a quantized KV cache are ignored; --kv-dtype says how "
                     "keys and values are kept"));
  }
  if (std::string note = PartsLeftOut(spec.tensor_prefix, &unexpected); !note.empty()) {
    checkpoint->notes.push_back(std::move(note));
  }
  if (!unexpected.empty()) {
    checkpoint->notes.push_back(absl::StrCat(
        unexpected.size(), " unexpected tensors are ignored: ", SomeNames(unexpected)));
  }
  return absl::OkStatus();
}

}  // namespace

const TensorEntry* Checkpoint::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorEntry& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors.end() || found->name != name ? nullptr : &*found;
}

namespace {

// The files were chosen from the folder `checkpoint->path`.
absl::Status ReadGguf(const std::vector<std::string>& files, Checkpoint* checkpoint) {
  ASSIGN_OR_RETURN(GgufModel model, ReadGgufModel(checkpoint->path, files));
  checkpoint->config_json = std::move(model.config_json);
  checkpoint->generation_config_json = std::move(model.generation_config_json);
  checkpoint->tensors = std::move(model.tensors);
  checkpoint->weight_files = files;
  const auto spec = ParseModelConfig(checkpoint->config_json, checkpoint->generation_config_json);
  RETURN_IF_ERROR(Annotate(spec.status(), files[0]));
  checkpoint->spec = *spec;
  RETURN_IF_ERROR(SortTensors(&checkpoint->tensors));
  return CheckTensors(checkpoint);
}

bool IsRegularFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

absl::StatusOr<Checkpoint> OpenGgufFile(const std::string& path) {
  Checkpoint checkpoint;
  const size_t slash = path.rfind('/');
  checkpoint.path = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  checkpoint.whole_folder = false;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(checkpoint.path));
  ASSIGN_OR_RETURN(const std::vector<std::string> files,
                   GgufPartsOf(path.substr(slash == std::string::npos ? 0 : slash + 1), names));
  RETURN_IF_ERROR(ReadGguf(files, &checkpoint));
  return checkpoint;
}

}  // namespace

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path) {
  if (absl::EndsWith(path, ".gguf") && IsRegularFile(path)) {
    return OpenGgufFile(path);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  Checkpoint checkpoint;
  checkpoint.path = path;
  ASSIGN_OR_RETURN(const std::vector<std::string> files, GgufFilesOf(names));
  if (!files.empty()) {
    RETURN_IF_ERROR(ReadGguf(files, &checkpoint));
    return checkpoint;
  }
  if (!Contains(names, "config.json")) {
    return Error(absl::StatusCode::kNotFound, "NO_CHECKPOINT", path + " has no config.json")
        .Hint("give the folder of a checkpoint in the Hugging Face layout, or a .gguf file");
  }
  ASSIGN_OR_RETURN(checkpoint.config_json, ReadSmallFile(path + "/config.json", kMaxConfigBytes));
  if (Contains(names, kModelOptName)) {
    ASSIGN_OR_RETURN(const std::string stored,
                     ReadSmallFile(absl::StrCat(path, "/", kModelOptName), kMaxConfigBytes));
    ASSIGN_OR_RETURN(checkpoint.config_json, AddModelOpt(checkpoint.config_json, stored));
  }
  if (Contains(names, "generation_config.json")) {
    ASSIGN_OR_RETURN(checkpoint.generation_config_json,
                     ReadSmallFile(path + "/generation_config.json", kMaxConfigBytes));
  }
  ASSIGN_OR_RETURN(checkpoint.spec,
                   ParseModelConfig(checkpoint.config_json, checkpoint.generation_config_json));
  RETURN_IF_ERROR(ReadWeightHeaders(names, &checkpoint));
  TakeDecoderNames(checkpoint.spec.tensor_prefix, &checkpoint.tensors);
  RETURN_IF_ERROR(SortTensors(&checkpoint.tensors));
  RETURN_IF_ERROR(CheckTensors(&checkpoint));
  RETURN_IF_ERROR(CheckTiedHead(checkpoint));
  return checkpoint;
}

}  // namespace strata
