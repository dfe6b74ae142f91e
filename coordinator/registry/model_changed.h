// The one error for files that are not what was registered.
#ifndef STRATA_COORDINATOR_REGISTRY_MODEL_CHANGED_H_
#define STRATA_COORDINATOR_REGISTRY_MODEL_CHANGED_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/shell_word.h"
#include "common/status.h"
#include "coordinator/registry/manifest.h"

namespace strata {

// `path` is a file of the model.
inline absl::Status ModelChanged(const std::string& path, const ModelManifest& manifest,
                                 std::string_view what) {
  const std::string remove =
      absl::StrCat("put the file back, or `strata model remove ", manifest.model, " --force` and ");
  return Error(absl::StatusCode::kFailedPrecondition, "MODEL_CHANGED",
               absl::StrCat(path, " ", std::string(what)))
      .Hint(manifest.model.empty() ? "put the file back"
            : manifest.ours
                ? absl::StrCat(remove, "upload or pull it again")
                : absl::StrCat(remove, "`strata model add ", ShellWord(manifest.Source()),
                               " --name ", manifest.model, "` register what it is now"));
}

// Of size and time. Devices are numbered anew at every boot, and inodes when files are copied back.
inline bool SameFile(const FileIdentity& a, const FileIdentity& b) {
  return a.bytes == b.bytes && a.modified_ns == b.modified_ns;
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_MODEL_CHANGED_H_
