#include "coordinator/registry/file_trust.h"

#include <algorithm>
#include <utility>

#include "common/digest.h"
#include "common/status.h"
#include "coordinator/registry/model_changed.h"

namespace strata {
namespace {

constexpr size_t kReadBytes = size_t{4} << 20;

}  // namespace

bool FileTrust::HoldsForSure(const FileReader& file, const ManifestFile& registered) const {
  if (SameFile(file.identity(), registered.identity)) {
    return true;
  }
  MutexLock lock(&mutex_);
  const auto known = known_.find(file.path());
  return known != known_.end() && known->second.identity == file.identity() &&
         known->second.sha256 == registered.sha256;
}

absl::StatusOr<bool> FileTrust::Holds(const FileReader& file, const ManifestFile& registered) {
  if (SameFile(file.identity(), registered.identity)) {
    return true;
  }
  if (file.identity().bytes != registered.identity.bytes) {
    return false;  // Whatever it holds.
  }
  {
    MutexLock lock(&mutex_);
    while (reading_.contains(file.path())) {
      read_.Wait(&mutex_);
    }
    const auto known = known_.find(file.path());
    if (known != known_.end() && known->second.identity == file.identity()) {
      return known->second.sha256 == registered.sha256;
    }
    reading_[file.path()] = {file.path(), 0, file.size()};
  }
  const absl::StatusOr<std::string> sha256 = Digest(file);
  {
    MutexLock lock(&mutex_);
    reading_.erase(file.path());
    if (sha256.ok()) {
      known_[file.path()] = {file.identity(), *sha256};
    }
    read_.NotifyAll();
  }
  RETURN_IF_ERROR(sha256.status());
  const bool same = *sha256 == registered.sha256;
  if (same && on_same_) {
    on_same_(file.path(), file.identity(), *sha256);
  }
  return same;
}

absl::StatusOr<std::string> FileTrust::Digest(const FileReader& file) {
  Sha256 sha;
  std::string buffer(std::min<uint64_t>(kReadBytes, std::max<uint64_t>(file.size(), 1)), '\0');
  for (uint64_t at = 0; at < file.size();) {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(buffer.size(), file.size() - at));
    RETURN_IF_ERROR(file.ReadAt(at, buffer.data(), bytes));
    sha.Update(std::string_view(buffer).substr(0, bytes));
    at += bytes;
    MutexLock lock(&mutex_);
    reading_[file.path()].done_bytes = at;
  }
  ASSIGN_OR_RETURN(const FileIdentity after, file.CurrentIdentity());
  if (!(after == file.identity())) {
    return Error(absl::StatusCode::kUnavailable, "FILE_CHANGES",
                 file.path() + " changed while it was read")
        .Hint("wait until nothing writes to it");
  }
  return ToHex(sha.Finish());
}

std::vector<FileBeingRead> FileTrust::BeingRead() const {
  MutexLock lock(&mutex_);
  std::vector<FileBeingRead> files;
  for (const auto& [path, file] : reading_) {
    files.push_back(file);
  }
  return files;
}

}  // namespace strata
