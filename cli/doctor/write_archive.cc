#include "cli/doctor/write_archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "common/platform/run_program.h"
#include "common/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kTarTimeout{60};
constexpr size_t kMaxSaidBytes = 4096;

// A folder of its own, gone with the object.
class Scratch {
 public:
  Scratch() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "strata-support-XXXXXX").string();
    path_ = mkdtemp(name.data()) != nullptr ? name : "";  // Mode 0700.
  }
  ~Scratch() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status Failed(const std::string& what) {
  return Error(absl::StatusCode::kInternal, "FILE_FAILED", what)
      .Hint("give --output a file in a folder that you may write to");
}

std::string Plain(std::string path) {
  for (char& c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.' &&
        c != '/') {
      c = '_';
    }
  }
  return path;
}

}  // namespace

void ArchiveFiles::Add(const std::string& path, std::string text) {
  const std::string name = Plain(path);
  std::string note;
  if (text.size() > kMaxArchiveFileBytes) {
    note =
        ", its last " + std::to_string(kMaxArchiveFileBytes) + " of " + std::to_string(text.size());
    text.erase(0, text.size() - kMaxArchiveFileBytes);
  }
  if (bytes_ + text.size() > kMaxArchiveBytes) {
    contents_ += name + ": left out, " + std::to_string(text.size()) + " bytes\n";
    return;
  }
  bytes_ += text.size();
  contents_ += name + ": " + std::to_string(text.size()) + " bytes" + note + "\n";
  files_.emplace_back(name, std::move(text));
}

std::vector<std::pair<std::string, std::string>> ArchiveFiles::Take() && {
  files_.insert(files_.begin(), {"CONTENTS", std::move(contents_)});
  return std::move(files_);
}

absl::Status WriteArchive(const std::string& path, const std::string& top,
                          const std::vector<std::pair<std::string, std::string>>& files) {
  const Scratch scratch;
  if (scratch.path().empty()) {
    return Failed("there is no temporary folder");
  }
  std::error_code error;
  for (const auto& [name, text] : files) {
    const fs::path file = fs::path(scratch.path()) / top / name;
    fs::create_directories(file.parent_path(), error);
    std::ofstream out(file, std::ios::binary);
    out << text;
    out.flush();
    if (!out.good()) {
      return Failed("cannot write " + file.string());
    }
  }
  // It is there, and its user's alone, before anything is in it.
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) {
    return fs::exists(path, error)
               ? static_cast<absl::Status>(
                     Error(absl::StatusCode::kAlreadyExists, "FILE_EXISTS", path + " exists")
                         .Hint("give --output another name"))
               : Failed("cannot write " + path);
  }
  close(fd);
  const auto run = RunProgram(
      {"tar", "--create", "--gzip", "--file", path, "--directory", scratch.path(), "--", top},
      {.timeout = kTarTimeout, .max_output_bytes = kMaxSaidBytes});
  if (run.ok() && run->exit_status == 0) {
    return absl::OkStatus();
  }
  fs::remove(path, error);
  return Failed("tar does not write " + path + ": " +
                (run.ok() ? run->error : std::string(run.status().message())));
}

}  // namespace strata::cli
