// Whether a file still holds what was registered, asked for often and without reading it where that
// can be told from its size and times.
#ifndef STRATA_COORDINATOR_REGISTRY_FILE_TRUST_H_
#define STRATA_COORDINATOR_REGISTRY_FILE_TRUST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/file_reader.h"
#include "common/mutex.h"
#include "coordinator/registry/manifest.h"

namespace strata {

// A file that is being read again, since its time is not what was registered.
struct FileBeingRead {
  std::string path;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
};

// Any thread.
class FileTrust {
 public:
  // A file was read again and holds what it held, `sha256`; `identity` is what it is like now.
  // Called on the thread that asked.
  using OnSameFn = std::function<void(const std::string& path, const FileIdentity& identity,
                                      const std::string& sha256)>;

  // Before the first file is asked about.
  void OnSame(OnSameFn on_same) { on_same_ = std::move(on_same); }

  // Whether `file`, open, holds what `registered` says. Of the same size and time: it is trusted.
  // Of another time it is read, once for as long as it stays as it is, which may take long; who
  // asks meanwhile waits. Errors are those of reading.
  absl::StatusOr<bool> Holds(const FileReader& file, const ManifestFile& registered);
  // The same as far as it is known without reading; a file that would have to be read gives false.
  bool HoldsForSure(const FileReader& file, const ManifestFile& registered) const;

  std::vector<FileBeingRead> BeingRead() const;

 private:
  // What a file was when it was read, and what it held.
  struct Known {
    FileIdentity identity;
    std::string sha256;
  };

  absl::StatusOr<std::string> Digest(const FileReader& file);

  OnSameFn on_same_;
  mutable Mutex mutex_;
  CondVar read_;
  std::map<std::string, Known> known_ STRATA_GUARDED_BY(mutex_);            // By path.
  std::map<std::string, FileBeingRead> reading_ STRATA_GUARDED_BY(mutex_);  // By path.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_FILE_TRUST_H_
