// Manifests as JSON, for the state store.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/json_reader.h"
#include "common/model/block_formats.h"
#include "common/status.h"
#include "coordinator/registry/manifest.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr uint64_t kVersion = 1;
constexpr size_t kMaxManifestBytes = size_t{512} << 20;
constexpr uint64_t kMost = UINT64_MAX;

absl::Status InvalidManifest(std::string_view problem) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_MANIFEST",
               absl::StrCat("manifest: ", std::string(problem)));
}

bool IsDigest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

absl::StatusOr<ManifestFile> FileOf(const json& value) {
  if (!value.is_object()) {
    return InvalidManifest("a file is not an object");
  }
  FieldReader reader(&value, "file.");
  ManifestFile file;
  file.name = reader.String("name", "");
  file.sha256 = reader.String("sha256", "");
  file.identity.bytes = reader.Uint("bytes", 0, kMost);
  // Before 1970 is negative: kept in two's complement.
  file.identity.modified_ns = static_cast<int64_t>(reader.Uint("modified_ns", 0, kMost));
  file.identity.device = reader.Uint("device", 0, kMost);
  file.identity.inode = reader.Uint("inode", 0, kMost);
  if (!reader.status().ok()) {
    return InvalidManifest(std::string(reader.status().message()));
  }
  if (file.name.empty() || file.name.find('/') != std::string::npos || !IsDigest(file.sha256)) {
    return InvalidManifest("file " + Quoted(file.name) + " has no plain name or no digest");
  }
  return file;
}

absl::StatusOr<ManifestTensor> TensorOf(const json& value, const ModelManifest& manifest) {
  if (!value.is_object()) {
    return InvalidManifest("a tensor is not an object");
  }
  FieldReader reader(&value, "tensor.");
  ManifestTensor tensor;
  tensor.name = reader.String("name", "");
  tensor.file = reader.String("file", "");
  tensor.sha256 = reader.String("sha256", "");
  tensor.offset = reader.Uint("offset", 0, kMost);
  tensor.bytes = reader.Uint("bytes", 0, kMost);
  const std::optional<Dtype> dtype = DtypeOfName(reader.String("dtype", ""));
  const json* shape = reader.Find("shape");
  if (!reader.status().ok()) {
    return InvalidManifest(std::string(reader.status().message()));
  }
  const std::string who = "tensor " + Quoted(tensor.name);
  if (!dtype.has_value() || shape == nullptr || !shape->is_array() || !IsDigest(tensor.sha256)) {
    return InvalidManifest(who + " has no dtype, shape or digest");
  }
  tensor.dtype = *dtype;
  for (const json& dimension : *shape) {
    if (!dimension.is_number_unsigned()) {
      return InvalidManifest(who + " has a shape that is not one");
    }
    tensor.shape.push_back(dimension.get<uint64_t>());
  }
  const std::optional<uint64_t> bytes = TensorBytes(*dtype, tensor.shape);
  if (!bytes.has_value()) {
    return InvalidManifest(who + " has a shape that is not one");
  }
  const ManifestFile* file = manifest.FindFile(tensor.file);
  if (*bytes != tensor.bytes || file == nullptr || tensor.offset > file->identity.bytes ||
      tensor.bytes > file->identity.bytes - tensor.offset) {
    return InvalidManifest(who + " does not lie within a file");
  }
  return tensor;
}

// The list under `name`, read by `read`, in ascending order of names.
template <typename Entry, typename Read>
absl::Status ReadList(const json& parsed, const char* name, const Read& read,
                      std::vector<Entry>* out) {
  const auto list = parsed.find(name);
  if (list == parsed.end() || !list->is_array()) {
    return InvalidManifest(absl::StrCat(name, " is not a list"));
  }
  for (const json& value : *list) {
    ASSIGN_OR_RETURN(Entry entry, read(value));
    if (!out->empty() && !(out->back().name < entry.name)) {
      return InvalidManifest(absl::StrCat(name, " are not in order at ", Quoted(entry.name)));
    }
    out->push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::Status ReadTexts(const json& parsed, ModelManifest* manifest) {
  FieldReader reader(&parsed, "");
  if (reader.Uint("version", 0, kMost) != kVersion) {
    return InvalidManifest("is of a version that is not known");
  }
  manifest->path = reader.String("path", "");
  manifest->weights_digest = reader.String("weights_digest", "");
  manifest->config_json = reader.String("config_json", "");
  manifest->generation_config_json = reader.String("generation_config_json", "");
  manifest->has_tokenizer = reader.Bool("has_tokenizer", false);
  manifest->chat_template = reader.String("chat_template", "");
  manifest->chat_template_file = reader.String("chat_template_file", "");
  manifest->bos_token = reader.String("bos_token", "");
  manifest->eos_token = reader.String("eos_token", "");
  if (!reader.status().ok()) {
    return InvalidManifest(std::string(reader.status().message()));
  }
  if (const json* tokens = reader.Find("special_tokens"); tokens != nullptr) {
    for (const json& token : *tokens) {
      if (!token.is_array() || token.size() != 2 || !token[0].is_string() ||
          !token[1].is_string()) {
        return InvalidManifest("special_tokens has an entry that is no name and token");
      }
      manifest->special_tokens.emplace_back(token[0].get<std::string>(),
                                            token[1].get<std::string>());
    }
  }
  if (const json* notes = reader.Find("notes"); notes != nullptr && notes->is_array()) {
    for (const json& note : *notes) {
      if (note.is_string()) {
        manifest->notes.push_back(note.get<std::string>());
      }
    }
  }
  return absl::OkStatus();
}

// Manifests did not always say which file the chat template is in.
std::string TemplateFileOf(const ModelManifest& manifest) {
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"}) {
    if (manifest.FindFile(name) != nullptr) {
      return name;
    }
  }
  return manifest.files.empty() ? "" : manifest.files.front().name;
}

}  // namespace

std::string ManifestToJson(const ModelManifest& manifest) {
  json files = json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"sha256", file.sha256},
                     {"bytes", file.identity.bytes},
                     {"modified_ns", static_cast<uint64_t>(file.identity.modified_ns)},
                     {"device", file.identity.device},
                     {"inode", file.identity.inode}});
  }
  json tensors = json::array();
  for (const ManifestTensor& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", DtypeName(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"file", tensor.file},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes},
                       {"sha256", tensor.sha256}});
  }
  const json document = {{"version", kVersion},
                         {"path", manifest.path},
                         {"files", std::move(files)},
                         {"tensors", std::move(tensors)},
                         {"weights_digest", manifest.weights_digest},
                         {"config_json", manifest.config_json},
                         {"generation_config_json", manifest.generation_config_json},
                         {"has_tokenizer", manifest.has_tokenizer},
                         {"chat_template", manifest.chat_template},
                         {"chat_template_file", manifest.chat_template_file},
                         {"bos_token", manifest.bos_token},
                         {"eos_token", manifest.eos_token},
                         {"special_tokens", manifest.special_tokens},
                         {"notes", manifest.notes}};
  // Paths come over gRPC and so are UTF-8; what is not, of a template, is replaced.
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<ModelManifest> ManifestFromJson(std::string_view text) {
  ASSIGN_OR_RETURN(const json parsed,
                   ParseJsonObject(text, "manifest", "INVALID_MANIFEST", kMaxManifestBytes));
  ModelManifest manifest;
  RETURN_IF_ERROR(ReadTexts(parsed, &manifest));
  RETURN_IF_ERROR(ReadList(parsed, "files", FileOf, &manifest.files));
  if (!manifest.chat_template.empty() && manifest.chat_template_file.empty()) {
    manifest.chat_template_file = TemplateFileOf(manifest);
  }
  RETURN_IF_ERROR(ReadList(
      parsed, "tensors", [&](const json& value) { return TensorOf(value, manifest); },
      &manifest.tensors));
  if (manifest.weights_digest != WeightsDigest(manifest.tensors)) {
    return InvalidManifest("weights_digest is not that of its tensors");
  }
  ASSIGN_OR_RETURN(manifest.spec,
                   ParseModelConfig(manifest.config_json, manifest.generation_config_json));
  const auto last = static_cast<uint32_t>(manifest.spec.layers.size() - 1);
  for (const StageTensor& tensor :
       TensorsOf(manifest.spec, 0, last, true, true, manifest.Exists())) {
    const ManifestTensor* found = manifest.FindTensor(tensor.name);
    if (found == nullptr || !tensor.Fits(found->shape)) {
      return InvalidManifest("tensor " + Quoted(tensor.name) + " is missing or of another shape");
    }
  }
  return manifest;
}

}  // namespace strata
