// A .tar.gz of texts.
#ifndef STRATA_CLI_DOCTOR_WRITE_ARCHIVE_H_
#define STRATA_CLI_DOCTOR_WRITE_ARCHIVE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace strata::cli {

inline constexpr size_t kMaxArchiveFileBytes = size_t{2} << 20;
inline constexpr size_t kMaxArchiveBytes = size_t{32} << 20;

// The files of an archive: longer ones lose their beginning, and those that have no room are left
// out; CONTENTS in it says so.
class ArchiveFiles {
 public:
  // `path` within the archive: letters, digits, '-', '_', '.' and '/'; others become '_'.
  void Add(const std::string& path, std::string text);
  // With CONTENTS, a line for each.
  std::vector<std::pair<std::string, std::string>> Take() &&;

 private:
  std::vector<std::pair<std::string, std::string>> files_;
  std::string contents_;
  size_t bytes_ = 0;
};

// Writes them beneath the folder `top` into the archive `path`, which its user alone can read, by
// the system's tar. ALREADY_EXISTS (FILE_EXISTS); INTERNAL (FILE_FAILED).
absl::Status WriteArchive(const std::string& path, const std::string& top,
                          const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace strata::cli

#endif  // STRATA_CLI_DOCTOR_WRITE_ARCHIVE_H_
