// The one error for files that are not what was registered.
#ifndef STRATA_COORDINATOR_REGISTRY_MODEL_CHANGED_H_
#define STRATA_COORDINATOR_REGISTRY_MODEL_CHANGED_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/status.h"

namespace strata {

inline absl::Status ModelChanged(const std::string& path, const std::string& folder,
                                 std::string_view what) {
  return Error(absl::StatusCode::kFailedPrecondition, "MODEL_CHANGED",
               absl::StrCat(path, " ", std::string(what)))
      .Hint(absl::StrCat("put the file back, or run `strata model add ",
                         path.ends_with(".gguf") ? path : folder, "` again"));
}

// Devices are numbered anew at every boot, so they do not count.
inline bool SameFile(const FileIdentity& a, const FileIdentity& b) {
  return a.bytes == b.bytes && a.modified_ns == b.modified_ns && a.inode == b.inode;
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_MODEL_CHANGED_H_
