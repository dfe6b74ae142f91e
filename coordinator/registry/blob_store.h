// Everything that workers may fetch, by content: tensors and files of the registered checkpoints,
// and small blobs that live in memory (rotary tables).
#ifndef STRATA_COORDINATOR_REGISTRY_BLOB_STORE_H_
#define STRATA_COORDINATOR_REGISTRY_BLOB_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "coordinator/registry/file_trust.h"
#include "coordinator/registry/manifest.h"

namespace strata {

// Where a blob's bytes are; stays readable when the store forgets it.
struct Blob {
  std::string sha256;
  uint64_t bytes = 0;
  std::string path;  // "" for one in memory.
  uint64_t offset = 0;
  std::shared_ptr<const ModelManifest> manifest;  // Of one in a file.
  const ManifestFile* file = nullptr;             // The manifest's.
  std::shared_ptr<const std::string> memory;
};

// A blob in memory.
struct MemoryBlob {
  std::string sha256;
  std::shared_ptr<const std::string> data;
};

// Any thread.
class BlobStore {
 public:
  // Offers a model's tensors and files under the model's name, in place of those it had.
  void AddManifest(const std::string& model, std::shared_ptr<const ModelManifest> manifest);
  void RemoveManifest(const std::string& model);

  // Offers a blob for as long as somebody holds `data` of the result. Adding it again gives the
  // one that is there.
  MemoryBlob AddMemory(std::string data);

  // NOT_FOUND (NO_BLOB) when nothing registered has this content. When several files have it, one
  // that has not changed is preferred.
  absl::StatusOr<Blob> Find(std::string_view sha256) const;

  // Puts `bytes` bytes from `offset` within the blob into `out`. OUT_OF_RANGE beyond its end;
  // FAILED_PRECONDITION (MODEL_CHANGED) when the file is gone, or holds other bytes than what was
  // registered. One whose time has changed is read whole first, once, to see whether it does.
  absl::Status Read(const Blob& blob, uint64_t offset, uint64_t bytes, std::string* out) const;

  FileTrust* trust() const { return &trust_; }

 private:
  struct Place {
    std::shared_ptr<const ModelManifest> manifest;
    const ManifestFile* file;  // The manifest's.
    uint64_t offset;
    uint64_t bytes;
  };

  void Rebuild() STRATA_REQUIRES(mutex_);
  // Opens the file if it is what was registered.
  absl::StatusOr<FileReader> OpenUnchanged(const Blob& blob) const;
  bool IsUnchangedForSure(const Blob& blob) const;

  mutable FileTrust trust_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<const ModelManifest>> models_ STRATA_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::vector<Place>> places_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<const std::string>> memory_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_BLOB_STORE_H_
