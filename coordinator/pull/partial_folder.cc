#include "coordinator/pull/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/status.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
constexpr char kRecordName[] = ".pull.json";
constexpr char kLockName[] = ".pull.lock";

absl::Status SyncPath(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) {
    return SystemError("cannot open", path, errno);
  }
  const int failed = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return failed == 0 ? absl::OkStatus() : SystemError("cannot write", path, failed);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                 : SystemError("cannot rename to", to, errno);
}

}  // namespace

absl::Status SystemError(std::string_view what, const std::string& path, int error) {
  const std::string message = std::string(what) + " " + path + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) {
    return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", message)
        .Hint("free some space, then pull again: what has arrived is kept");
  }
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return Error(denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
               "FILE_SYSTEM", message);
}

absl::StatusOr<std::unique_ptr<PartialFolder>> PartialFolder::Open(const std::string& models_dir,
                                                                   const std::string& name,
                                                                   const std::string& repository,
                                                                   const std::string& commit) {
  const std::string path = models_dir + "/" + name + ".partial";
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return SystemError("cannot create", path, error.value());
  }
  const std::string lock_path = path + "/" + kLockName;
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) {
    return SystemError("cannot open", lock_path, errno);
  }
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return Error(absl::StatusCode::kFailedPrecondition, "PULL_IN_PROGRESS",
                 "another pull is writing " + path)
        .Hint("wait for it, or give this one another --name");
  }
  std::unique_ptr<PartialFolder> folder(new PartialFolder(path, repository, commit, lock));
  RETURN_IF_ERROR(folder->Load());
  return folder;
}

PartialFolder::~PartialFolder() {
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

absl::Status PartialFolder::Load() {
  std::ifstream in(path_ + "/" + kRecordName, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const Json record = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  const bool same = record.is_object() && !commit_.empty() &&
                    record.value("commit", Json()) == Json(commit_) &&
                    record.value("repository", Json()) == Json(repository_) &&
                    record.value("files", Json()).is_object();
  if (!same) {
    for (const auto& entry : fs::directory_iterator(path_)) {
      if (entry.path().filename() != kLockName) {
        std::error_code error;
        fs::remove_all(entry.path(), error);
        if (error) {
          return SystemError("cannot remove", entry.path().string(), error.value());
        }
      }
    }
    return Save();
  }
  const auto text_of = [](const Json& file, const char* key) {
    const auto found = file.find(key);
    return found != file.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  for (const auto& [name, file] : record["files"].items()) {
    if (!file.is_object()) {
      continue;
    }
    FileRecord known;
    known.etag = text_of(file, "etag");
    known.linked_etag = text_of(file, "linked_etag");
    known.sha256 = text_of(file, "sha256");
    const auto total = file.find("total_bytes");
    known.total_bytes =
        total != file.end() && total->is_number_unsigned() ? total->get<uint64_t>() : 0;
    known.verified = file.value("verified", Json(false)) == Json(true);
    known.done = file.value("done", Json(false)) == Json(true);
    records_[name] = known;
  }
  return absl::OkStatus();
}

absl::Status PartialFolder::Save() const {
  Json files = Json::object();
  for (const auto& [name, file] : records_) {
    files[name] = {{"etag", file.etag},
                   {"linked_etag", file.linked_etag},
                   {"total_bytes", file.total_bytes},
                   {"sha256", file.sha256},
                   {"verified", file.verified},
                   {"done", file.done}};
  }
  const Json record = {{"repository", repository_}, {"commit", commit_}, {"files", files}};
  const std::string text = record.dump(1, ' ', false, Json::error_handler_t::replace);
  const std::string path = path_ + "/" + kRecordName;
  const std::string fresh = path + ".new";
  {
    errno = 0;
    std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) {
      return SystemError("cannot write", fresh, errno != 0 ? errno : EIO);
    }
  }
  RETURN_IF_ERROR(SyncPath(fresh, O_WRONLY));
  return Rename(fresh, path);
}

absl::Status PartialFolder::Finish(const std::string& file) {
  RETURN_IF_ERROR(Rename(PartPath(file), path_ + "/" + file));
  return Save();
}

absl::Status PartialFolder::Commit(const std::string& target) {
  RETURN_IF_ERROR(SyncPath(path_, O_RDONLY));
  RETURN_IF_ERROR(Rename(path_, target));
  for (const char* name : {kRecordName, kLockName}) {
    ::unlink((target + "/" + name).c_str());
  }
  return SyncPath(fs::path(target).parent_path().string(), O_RDONLY);
}

}  // namespace strata
