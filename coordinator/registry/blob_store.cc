#include "coordinator/registry/blob_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/status.h"
#include "coordinator/registry/model_changed.h"

namespace strata {
absl::StatusOr<FileReader> BlobStore::OpenUnchanged(const Blob& blob) const {
  auto file = FileReader::Open(blob.path);
  if (file.status().code() == absl::StatusCode::kNotFound) {
    return ModelChanged(blob.path, *blob.manifest, "is gone");
  }
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(const bool same, trust_.Holds(*file, *blob.file));
  if (!same) {
    return ModelChanged(blob.path, *blob.manifest, "changed since it was registered");
  }
  return file;
}

bool BlobStore::IsUnchangedForSure(const Blob& blob) const {
  const auto file = FileReader::Open(blob.path);
  return file.ok() && trust_.HoldsForSure(*file, *blob.file);
}

void BlobStore::AddManifest(const std::string& model,
                            std::shared_ptr<const ModelManifest> manifest) {
  MutexLock lock(&mutex_);
  models_[model] = std::move(manifest);
  Rebuild();
}

void BlobStore::RemoveManifest(const std::string& model) {
  MutexLock lock(&mutex_);
  if (models_.erase(model) > 0) {
    Rebuild();
  }
}

void BlobStore::Rebuild() {
  places_.clear();
  for (const auto& [name, manifest] : models_) {
    for (const ManifestFile& file : manifest->files) {
      places_[file.sha256].push_back({manifest, &file, 0, file.identity.bytes});
    }
    for (const ManifestTensor& tensor : manifest->tensors) {
      const ManifestFile* file = manifest->FindFile(tensor.file);
      if (file != nullptr) {
        places_[tensor.sha256].push_back({manifest, file, tensor.offset, tensor.bytes});
      }
    }
  }
}

MemoryBlob BlobStore::AddMemory(std::string data) {
  MemoryBlob blob;
  blob.sha256 = Sha256Hex(data);
  MutexLock lock(&mutex_);
  std::erase_if(memory_, [](const auto& entry) { return entry.second.expired(); });
  blob.data = memory_[blob.sha256].lock();
  if (blob.data == nullptr) {
    blob.data = std::make_shared<const std::string>(std::move(data));
    memory_[blob.sha256] = blob.data;
  }
  return blob;
}

absl::StatusOr<Blob> BlobStore::Find(std::string_view sha256) const {
  std::vector<Blob> found;
  {
    MutexLock lock(&mutex_);
    const std::string key(sha256);
    if (const auto entry = memory_.find(key); entry != memory_.end()) {
      if (auto memory = entry->second.lock()) {
        Blob blob;
        blob.sha256 = key;
        blob.bytes = memory->size();
        blob.memory = std::move(memory);
        return blob;
      }
    }
    if (const auto places = places_.find(key); places != places_.end()) {
      for (const Place& place : places->second) {
        found.push_back({key, place.bytes,
                         absl::StrCat(place.manifest->path, "/", place.file->name), place.offset,
                         place.manifest, place.file, nullptr});
      }
    }
  }
  if (found.empty()) {
    return Error(absl::StatusCode::kNotFound, "NO_BLOB",
                 absl::StrCat("no registered model has the content ", std::string(sha256)))
        .Hint(
            "the model was removed, or added anew with other files: `strata model list` shows "
            "what is there");
  }
  for (Blob& blob : found) {
    if (found.size() == 1 || IsUnchangedForSure(blob)) {
      return std::move(blob);
    }
  }
  for (Blob& blob : found) {
    if (OpenUnchanged(blob).ok()) {
      return std::move(blob);
    }
  }
  return std::move(found.front());
}

absl::Status BlobStore::Read(const Blob& blob, uint64_t offset, uint64_t bytes,
                             std::string* out) const {
  if (offset > blob.bytes || bytes > blob.bytes - offset) {
    return Error(
        absl::StatusCode::kOutOfRange, "BLOB_RANGE",
        absl::StrCat("bytes [", offset, ", +", bytes, ") of a blob of ", blob.bytes, " bytes"));
  }
  if (blob.memory != nullptr) {
    out->assign(*blob.memory, offset, bytes);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const FileReader file, OpenUnchanged(blob));
  out->resize(bytes);
  RETURN_IF_ERROR(file.ReadAt(blob.offset + offset, out->data(), bytes));
  // Also not while it was read.
  ASSIGN_OR_RETURN(const FileIdentity after, file.CurrentIdentity());
  if (!SameFile(after, file.identity())) {
    return ModelChanged(blob.path, *blob.manifest, "changes while it is read");
  }
  return absl::OkStatus();
}

}  // namespace strata
