#include "coordinator/registry/manifest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/status.h"
#include "coordinator/registry/model_changed.h"

namespace strata {
namespace {

constexpr size_t kMaxReadBytes = size_t{256} << 20;

template <typename Entry>
const Entry* FindByName(const std::vector<Entry>& entries, std::string_view name) {
  const auto found =
      std::lower_bound(entries.begin(), entries.end(), name,
                       [](const Entry& entry, std::string_view n) { return entry.name < n; });
  return found == entries.end() || found->name != name ? nullptr : &*found;
}

std::string Escaped(std::string_view name) {
  std::string text;
  for (char c : name) {
    switch (c) {
      case '\\':
        text += "\\\\";
        break;
      case '\t':
        text += "\\t";
        break;
      case '\n':
        text += "\\n";
        break;
      default:
        text += c;
    }
  }
  return text;
}

}  // namespace

const ManifestFile* ModelManifest::FindFile(std::string_view name) const {
  return FindByName(files, name);
}

const ManifestTensor* ModelManifest::FindTensor(std::string_view name) const {
  return FindByName(tensors, name);
}

std::string WeightsDigest(const std::vector<ManifestTensor>& tensors) {
  std::vector<const ManifestTensor*> order;
  order.reserve(tensors.size());
  for (const ManifestTensor& tensor : tensors) {
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(),
            [](const ManifestTensor* a, const ManifestTensor* b) { return a->name < b->name; });
  Sha256 sha;
  for (const ManifestTensor* tensor : order) {
    sha.Update(absl::StrCat(Escaped(tensor->name), "\t", DtypeName(tensor->dtype), "\t",
                            absl::StrJoin(tensor->shape, ","), "\t", tensor->sha256, "\n"));
  }
  return ToHex(sha.Finish());
}

std::string ModelManifest::Source() const {
  const bool gguf = std::all_of(files.begin(), files.end(), [](const ManifestFile& file) {
    return file.name.ends_with(".gguf");
  });
  return gguf && !files.empty() ? path + "/" + files.front().name : path;
}

absl::StatusOr<std::string> ReadManifestFile(const ModelManifest& manifest, std::string_view name) {
  const ManifestFile* file = manifest.FindFile(name);
  if (file == nullptr) {
    return Error(absl::StatusCode::kNotFound, "NO_FILE",
                 absl::StrCat(manifest.path, " has no ", std::string(name)));
  }
  const std::string path = manifest.path + "/" + file->name;
  auto contents = ReadSmallFile(path, kMaxReadBytes);
  if (contents.status().code() == absl::StatusCode::kNotFound) {
    return ModelChanged(path, manifest, "is gone");
  }
  RETURN_IF_ERROR(contents.status());
  if (Sha256Hex(*contents) != file->sha256) {
    return ModelChanged(path, manifest, "changed since it was registered");
  }
  return contents;
}

const ManifestFile* ManifestGguf(const ModelManifest& manifest) {
  const auto gguf = std::find_if(manifest.files.begin(), manifest.files.end(),
                                 [](const auto& file) { return file.name.ends_with(".gguf"); });
  return manifest.FindFile("tokenizer.json") != nullptr || gguf == manifest.files.end() ? nullptr
                                                                                        : &*gguf;
}

absl::StatusOr<std::string> FindManifestGguf(const ModelManifest& manifest) {
  const ManifestFile* gguf = ManifestGguf(manifest);
  if (gguf == nullptr) {
    return "";
  }
  const std::string path = manifest.path + "/" + gguf->name;
  const auto file = FileReader::Open(path);
  if (absl::IsNotFound(file.status())) {
    return ModelChanged(path, manifest, "is gone");
  }
  RETURN_IF_ERROR(file.status());
  if (!SameFile(file->identity(), gguf->identity)) {
    return ModelChanged(path, manifest, "changed since it was registered");
  }
  return path;
}

}  // namespace strata
