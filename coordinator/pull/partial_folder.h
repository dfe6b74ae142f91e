// The folder name.partial of a pull: its lock, and a record of what has arrived, so that another
// process can go on where this one stopped.
#ifndef STRATA_COORDINATOR_PULL_PARTIAL_FOLDER_H_
#define STRATA_COORDINATOR_PULL_PARTIAL_FOLDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace strata {

// What is known of one file.
struct FileRecord {
  std::string etag;          // Of the server that sent the bytes, with its quotes; "": none.
  std::string linked_etag;   // What the endpoint said of it (X-Linked-Etag), without quotes.
  uint64_t total_bytes = 0;  // 0: not known.
  std::string sha256;        // Hex, once done.
  bool verified = false;
  bool done = false;
};

class PartialFolder {
 public:
  // Creates models_dir/name.partial, or takes it over. A record of another repository or commit,
  // or of none ("" never equals), is dropped with its files.
  static absl::StatusOr<std::unique_ptr<PartialFolder>> Open(const std::string& models_dir,
                                                             const std::string& name,
                                                             const std::string& repository,
                                                             const std::string& commit);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  FileRecord& Record(const std::string& file) { return records_[file]; }
  // Writes the record durably.
  absl::Status Save() const;
  std::string PartPath(const std::string& file) const { return path_ + "/" + file + ".part"; }
  // file.part is complete: gives it its name.
  absl::Status Finish(const std::string& file);
  // The whole model is: renames the folder to `target`, without record and lock.
  absl::Status Commit(const std::string& target);

 private:
  PartialFolder(std::string path, std::string repository, std::string commit, int lock)
      : path_(std::move(path)),
        repository_(std::move(repository)),
        commit_(std::move(commit)),
        lock_(lock) {}
  absl::Status Load();

  const std::string path_;
  const std::string repository_;
  const std::string commit_;
  int lock_;
  std::map<std::string, FileRecord> records_;
};

// An error of the system at a path; a full disk is RESOURCE_EXHAUSTED, DISK_FULL.
absl::Status SystemError(std::string_view what, const std::string& path, int error);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_PARTIAL_FOLDER_H_
