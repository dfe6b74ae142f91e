#include "worker/weights/packed_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/digest.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "worker/weights/cache_policy.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPartBytes = uint64_t{1} << 20;     // What one checksum is of.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;  // Still in a core's cache after it is read.

uint64_t PartsOf(uint64_t bytes) { return (bytes + kPartBytes - 1) / kPartBytes; }
uint64_t FileBytes(uint64_t bytes) { return bytes + (PartsOf(bytes) + 1) * sizeof(uint32_t); }

void PutLe32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) {
    out->push_back(static_cast<char>(value >> shift & 255));
  }
}

uint32_t GetLe32(const std::string& from, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= uint32_t{static_cast<uint8_t>(from[at + i])} << 8 * i;
  }
  return value;
}

// Of the key too, so that a file under another's name is none.
uint32_t TableCrc(const std::string& key, const std::string& table) {
  return Crc32c(Crc32c(0, key.data(), key.size()), table.data(), table.size());
}

// An open file; closes it.
class Fd {
 public:
  Fd(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Fd() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Reads `count` bytes at `at`; false when there are fewer, errno being 0, or on an error.
bool ReadAt(int fd, void* out, uint64_t count, uint64_t at) {
  auto* to = static_cast<uint8_t*>(out);
  while (count > 0) {
    errno = 0;
    const ssize_t got = pread(fd, to, count, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    to += got;
    at += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const void* data, uint64_t count) {
  const auto* from = static_cast<const uint8_t*>(data);
  while (count > 0) {
    const ssize_t wrote = write(fd, from, count);
    if (wrote < 0 && errno != EINTR) {
      return false;
    }
    from += std::max<ssize_t>(0, wrote);
    count -= static_cast<uint64_t>(std::max<ssize_t>(0, wrote));
  }
  return true;
}

absl::Status Corrupt(const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, "CACHE_CORRUPT", path + " " + what);
}

// Reads an open file's bytes into `out`, or has them in memory where `out` is a map of it, and
// checks them against its table.
absl::Status ReadParts(const std::string& path, int fd, const std::string& table,
                       std::span<uint8_t> out, bool mapped, const SplitFn& split) {
  std::atomic<bool> corrupt = false;
  std::atomic<int> error = 0;
  const auto fail = [&](int why) {
    error = why;
    corrupt = true;
  };
  split(PartsOf(out.size()), [&](size_t begin, size_t end) {
    const uint64_t from = begin * kPartBytes;
    const uint64_t to = std::min<uint64_t>(out.size(), end * kPartBytes);
    if (mapped && from < to) {
      const absl::Status status = PopulatePages(out.data() + from, to - from);
      if (!status.ok()) {
        fail(absl::IsResourceExhausted(status) ? ENOMEM : EIO);
        return;
      }
    }
    for (size_t part = begin; part < end && !corrupt; ++part) {
      const uint64_t part_end = std::min<uint64_t>(to, (part + 1) * kPartBytes);
      uint32_t crc = 0;
      for (uint64_t at = part * kPartBytes; at < part_end; at += kPieceBytes) {
        const uint64_t count = std::min(kPieceBytes, part_end - at);
        if (!mapped && !ReadAt(fd, out.data() + at, count, at)) {
          fail(errno);
          return;
        }
        crc = Crc32c(crc, out.data() + at, count);
      }
      if (!cache_policy::IsIntact(crc, GetLe32(table, part * sizeof(uint32_t)))) {
        corrupt = true;
      }
    }
  });
  if (error != 0) {
    return CacheIoError("cannot read", path, error);
  }
  return corrupt ? Corrupt(path, "has a wrong checksum") : absl::OkStatus();
}

}  // namespace

PackedFiles::File PackedFiles::Pin(const PackedForm& form) const {
  File file;
  file.blob = {form.key, FileBytes(form.bytes)};
  file.sources = form.sources;
  file.pin = std::make_unique<CachePin>(cache_, std::vector<Blob>{file.blob});
  return file;
}

bool PackedFiles::Has(const PackedForm& form) {
  File file = Pin(form);
  if (!cache_->HasFile(cache_->PackedPathOf(form.key), file.blob.bytes)) {
    return false;
  }
  files_[form.key] = std::move(file);
  return true;
}

absl::Status PackedFiles::Read(const PackedForm& form, std::span<uint8_t> out,
                               const SplitFn& split) {
  return Get(form, out, split, /*may_map=*/false).status();
}

absl::StatusOr<bool> PackedFiles::Map(const PackedForm& form, std::span<uint8_t> out,
                                      const SplitFn& split) {
  return Get(form, out, split, maps_);
}

absl::StatusOr<bool> PackedFiles::Get(const PackedForm& form, std::span<uint8_t> out,
                                      const SplitFn& split, bool may_map) {
  const std::string path = cache_->PackedPathOf(form.key);
  const absl::StatusOr<bool> mapped = GetFile(path, form, out, split, may_map);
  if (mapped.ok()) {
    cache_->TouchFile(path, FileBytes(form.bytes));
    sources_.insert(form.sources.begin(), form.sources.end());
    read_bytes_ += form.bytes;
    return mapped;
  }
  if (absl::IsResourceExhausted(mapped.status())) {
    return mapped;
  }
  log_("packed weights are made again: " + Describe(mapped.status()));
  cache_->DeleteFile(path);
  files_.erase(form.key);
  return mapped;
}

absl::StatusOr<bool> PackedFiles::GetFile(const std::string& path, const PackedForm& form,
                                          std::span<uint8_t> out, const SplitFn& split,
                                          bool may_map) const {
  const Fd fd(path, O_RDONLY);
  struct stat info {};
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
    return CacheIoError("cannot open", path, errno);
  }
  const uint64_t wanted = FileBytes(form.bytes);
  if (static_cast<uint64_t>(info.st_size) != wanted) {
    return Corrupt(path, "has " + std::to_string(info.st_size) + " bytes instead of " +
                             std::to_string(wanted));
  }
  std::string table(wanted - form.bytes, '\0');
  if (!ReadAt(fd.get(), table.data(), table.size(), form.bytes)) {
    return CacheIoError("cannot read", path, errno);
  }
  const uint32_t table_crc = GetLe32(table, table.size() - sizeof(uint32_t));
  table.resize(table.size() - sizeof(uint32_t));
  if (!cache_policy::IsIntact(TableCrc(form.key, table), table_crc)) {
    return Corrupt(path, "has a wrong checksum");
  }
  bool mapped = false;
  if (may_map) {
    const absl::Status status = MapFile(fd.get(), out.data(), out.size());
    if (absl::IsResourceExhausted(status)) {
      return status;
    }
    mapped = status.ok();
  }
  const absl::Status status = ReadParts(path, fd.get(), table, out, mapped, split);
  if (status.ok()) {
    return mapped;
  }
  if (mapped) {
    RETURN_IF_ERROR(UnmapFile(out.data(), out.size()));
  }
  return status;
}

void PackedFiles::Write(const PackedForm& form, std::span<const uint8_t> packed) {
  if (!write_status_.ok()) {
    return;
  }
  const std::string path = cache_->PackedPathOf(form.key);
  File file = Pin(form);
  absl::Status status = cache_->MakeRoom();
  if (status.ok()) {
    status = WriteFile(path, form, packed);
  }
  if (ReasonOf(status) == "DISK_FULL" && cache_->FreeDisk(file.blob.bytes) > 0) {
    status = WriteFile(path, form, packed);
  }
  if (absl::IsAlreadyExists(status)) {
    return;
  }
  if (!status.ok()) {
    write_status_ = status;
    log_("packed weights are not kept, so that the next start packs them again: " +
         Describe(status));
    return;
  }
  cache_->TouchFile(path, file.blob.bytes);
  sources_.insert(form.sources.begin(), form.sources.end());
  written_.push_back(file.blob);
  files_[form.key] = std::move(file);
}

absl::Status PackedFiles::WriteFile(const std::string& path, const PackedForm& form,
                                    std::span<const uint8_t> packed) const {
  const std::string parent = fs::path(path).parent_path().string();
  std::error_code made;
  fs::create_directories(parent, made);
  if (made) {
    return CacheIoError("cannot make", parent, made.value());
  }
  const std::string partial = path + ".partial";
  // Exclusively: another load may be writing the same.
  const Fd fd(partial, O_WRONLY | O_CREAT | O_EXCL);
  if (fd.get() < 0) {
    return errno == EEXIST ? absl::AlreadyExistsError(partial)
                           : CacheIoError("cannot open", partial, errno);
  }
  std::string table;
  bool written = true;
  for (uint64_t at = 0; at < packed.size() && written; at += kPartBytes) {
    const uint64_t count = std::min<uint64_t>(kPartBytes, packed.size() - at);
    PutLe32(Crc32c(0, packed.data() + at, count), &table);
    written = WriteAll(fd.get(), packed.data() + at, count);
  }
  PutLe32(TableCrc(form.key, table), &table);
  written = written && WriteAll(fd.get(), table.data(), table.size());
  if (!written || rename(partial.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(partial.c_str());
    return CacheIoError("cannot write", partial, error);
  }
  return absl::OkStatus();
}

std::vector<Blob> PackedFiles::files() const {
  std::vector<Blob> blobs;
  for (const auto& [key, file] : files_) {
    blobs.push_back(file.blob);
  }
  return blobs;
}

std::vector<Blob> PackedFiles::FilesOf(const std::set<std::string>& tensors) const {
  std::vector<Blob> blobs;
  for (const auto& [key, file] : files_) {
    const bool of_them =
        std::any_of(file.sources.begin(), file.sources.end(),
                    [&](const std::string& source) { return tensors.contains(source); });
    if (of_them) blobs.push_back(file.blob);
  }
  return blobs;
}

}  // namespace strata
