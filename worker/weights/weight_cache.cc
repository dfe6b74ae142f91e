#include "worker/weights/weight_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/weights/cache_policy.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr char kPartial[] = ".partial";
constexpr char kGone[] = ".gone";  // Is being deleted.
constexpr size_t kDigestDigits = 64;

bool IsDigest(std::string_view text) {
  return text.size() == kDigestDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// The digest that a path of the cache is about.
std::string DigestOfPath(const std::string& path) {
  return fs::path(path).filename().string().substr(0, kDigestDigits);
}

int64_t UsedNs(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return 0;
  }
#if defined(__APPLE__)
  return int64_t{info.st_mtimespec.tv_sec} * 1'000'000'000 + info.st_mtimespec.tv_nsec;
#else
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
#endif
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return CacheIoError("cannot open", path, errno);
  }
  const int rc = fsync(fd);
  const int error = errno;
  close(fd);
  return rc == 0 ? absl::OkStatus() : CacheIoError("cannot sync", path, error);
}

// Reads all of it, and leaves little of it resident: a stage's blobs are verified together.
std::string DigestOf(const MappedBlob& blob) {
  constexpr size_t kSliceBytes = size_t{8} << 20;
  Sha256 sha;
  for (size_t at = 0; at < blob.bytes(); at += kSliceBytes) {
    const size_t count = std::min(kSliceBytes, blob.bytes() - at);
    sha.Update(blob.data() + at, count);
    blob.Drop(at, at + count);
  }
  return ToHex(sha.Finish());
}

}  // namespace

absl::Status CacheIoError(const std::string& what, const std::string& path, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                 what + " " + path + ": " + std::strerror(error))
        .Hint("free space there, lower --cache-limit, or move --data-dir");
  }
  return Error(absl::StatusCode::kInternal, "CACHE_IO",
               what + " " + path + ": " + std::strerror(error))
      .Hint("check the disk and the permissions of --data-dir");
}

CachePin::CachePin(WeightCache* cache, std::vector<Blob> blobs, Kind kind)
    : cache_(cache), blobs_(std::move(blobs)), kind_(kind) {
  MutexLock lock(&cache_->mutex_);
  auto& all = kind_ == Kind::kHard ? cache_->pinned_ : cache_->softly_pinned_;
  for (const Blob& blob : blobs_) {
    WeightCache::Pinned& pinned = all[blob.sha256];
    ++pinned.count;
    pinned.bytes = blob.bytes;
  }
}

CachePin::~CachePin() {
  MutexLock lock(&cache_->mutex_);
  auto& all = kind_ == Kind::kHard ? cache_->pinned_ : cache_->softly_pinned_;
  for (const Blob& blob : blobs_) {
    auto it = all.find(blob.sha256);
    if (--it->second.count == 0) {
      all.erase(it);
    }
  }
}

void MappedBlob::Drop(size_t begin, size_t end) const {
  DropResidentPages(data_ + begin, end - begin);
}

MappedBlob::~MappedBlob() {
  if (data_ != nullptr) {
    munmap(const_cast<uint8_t*>(data_), bytes_);
  }
}

BlobWriter::BlobWriter(WeightCache* cache, Blob blob, int fd, std::string partial_path)
    : cache_(cache), blob_(std::move(blob)), fd_(fd), partial_path_(std::move(partial_path)) {}

BlobWriter::~BlobWriter() { close(fd_); }

absl::Status BlobWriter::ReadBack() {
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t got = pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(offset_));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return CacheIoError("cannot read", partial_path_, errno);
    }
    if (got == 0) {
      return absl::OkStatus();
    }
    sha_.Update(buffer.data(), static_cast<size_t>(got));
    offset_ += static_cast<uint64_t>(got);
  }
}

absl::Status BlobWriter::Append(std::string_view data) {
  if (data.size() > blob_.bytes - offset_) {
    return Error(absl::StatusCode::kDataLoss, "BLOB_TOO_LONG",
                 "more bytes than blob " + blob_.sha256 + " has");
  }
  sha_.Update(data);
  while (!data.empty()) {
    const ssize_t wrote = pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset_));
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote < 0) {
      const int error = errno;
      const bool full = error == ENOSPC || error == EDQUOT;
      if (full && cache_->FreeDisk(blob_.bytes - offset_) > 0) {
        continue;
      }
      return CacheIoError("cannot write", partial_path_, error);
    }
    offset_ += static_cast<uint64_t>(wrote);
    data.remove_prefix(static_cast<size_t>(wrote));
    MutexLock lock(&cache_->mutex_);
    cache_->SetFile(partial_path_, {.bytes = offset_, .used_ns = used_ns_});
  }
  return absl::OkStatus();
}

absl::Status BlobWriter::Commit() {
  const std::string digest = ToHex(sha_.Finish());
  if (offset_ != blob_.bytes || !cache_policy::IsBlob(digest, blob_.sha256)) {
    unlink(partial_path_.c_str());
    MutexLock lock(&cache_->mutex_);
    cache_->EraseFile(partial_path_);
    return Error(absl::StatusCode::kDataLoss, "BAD_BLOB",
                 "fetched bytes have SHA-256 " + digest + ", not " + blob_.sha256);
  }
  const std::string path = cache_->PathOf(blob_.sha256);
  if (fsync(fd_) != 0) {
    return CacheIoError("cannot sync", partial_path_, errno);
  }
  if (rename(partial_path_.c_str(), path.c_str()) != 0) {
    return CacheIoError("cannot rename", partial_path_, errno);
  }
  RETURN_IF_ERROR(SyncDirectory(fs::path(path).parent_path().string()));
  const int64_t used_ns = UsedNs(path);
  MutexLock lock(&cache_->mutex_);
  cache_->EraseFile(partial_path_);
  cache_->SetFile(path, {.bytes = offset_, .used_ns = used_ns});
  cache_->verified_.insert(blob_.sha256);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightCache>> WeightCache::Open(const std::string& directory,
                                                               uint64_t limit_bytes) {
  auto cache = std::unique_ptr<WeightCache>(new WeightCache(directory, limit_bytes));
  std::error_code error;
  for (const char* folder : {"/sha256", "/packed"}) {
    fs::create_directories(directory + folder, error);
    if (error) {
      return CacheIoError("cannot make", directory + folder, error.value());
    }
  }
  RETURN_IF_ERROR(cache->Scan());
  return cache;
}

absl::Status WeightCache::Scan() {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(ScanFolder(directory_ + "/sha256", /*keep_partial=*/true));
  return ScanFolder(directory_ + "/packed", /*keep_partial=*/false);
}

absl::Status WeightCache::ScanFolder(const std::string& folder, bool keep_partial) {
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string path = it->path().string();
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!it->is_regular_file(ignored) || !IsDigest(name.substr(0, kDigestDigits))) {
      continue;
    }
    const std::string rest = name.substr(kDigestDigits);
    if (!rest.empty() && rest != kPartial && rest != kGone) {
      continue;
    }
    if (rest == kGone || (rest == kPartial && !keep_partial)) {
      unlink(path.c_str());
      continue;
    }
    SetFile(path, {.bytes = it->file_size(ignored), .used_ns = UsedNs(path)});
  }
  return error ? CacheIoError("cannot list", folder, error.value()) : absl::OkStatus();
}

std::string WeightCache::PathOf(const std::string& sha256) const {
  return directory_ + "/sha256/" + sha256.substr(0, 2) + "/" + sha256;
}

std::string WeightCache::PackedPathOf(const std::string& key) const {
  return directory_ + "/packed/" + key.substr(0, 2) + "/" + key;
}

absl::StatusOr<std::unique_ptr<MappedBlob>> WeightCache::MapFile(const std::string& path,
                                                                 const Blob& blob) const {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return errno == ENOENT ? absl::NotFoundError("blob " + blob.sha256 + " is not cached")
                           : CacheIoError("cannot open", path, errno);
  }
  struct stat info {};
  const bool right_size =
      fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) == blob.bytes;
  void* data = nullptr;
  if (right_size && blob.bytes > 0) {
    data = mmap(nullptr, blob.bytes, PROT_READ, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (!right_size) {
    return Error(absl::StatusCode::kDataLoss, "CACHE_CORRUPT",
                 path + " has " + std::to_string(info.st_size) + " bytes instead of " +
                     std::to_string(blob.bytes));
  }
  if (data == MAP_FAILED) {
    return CacheIoError("cannot map", path, error);
  }
  return std::unique_ptr<MappedBlob>(
      new MappedBlob(static_cast<const uint8_t*>(data), static_cast<size_t>(blob.bytes)));
}

absl::StatusOr<std::unique_ptr<MappedBlob>> WeightCache::Map(const Blob& blob) {
  if (!IsDigest(blob.sha256)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_DIGEST",
                 "\"" + blob.sha256 + "\" is no SHA-256");
  }
  const std::string path = PathOf(blob.sha256);
  absl::StatusOr<std::unique_ptr<MappedBlob>> mapped = MapFile(path, blob);
  bool verified = false;
  {
    MutexLock lock(&mutex_);
    verified = verified_.count(blob.sha256) > 0;
  }
  if (mapped.ok() && !verified) {
    if (const std::string digest = DigestOf(**mapped); !cache_policy::IsBlob(digest, blob.sha256)) {
      mapped = Error(absl::StatusCode::kDataLoss, "CACHE_CORRUPT", path + " has SHA-256 " + digest);
    }
  }
  if (mapped.ok()) {
    TouchFile(path, blob.bytes);
    MutexLock lock(&mutex_);
    verified_.insert(blob.sha256);
  } else if (absl::IsDataLoss(mapped.status())) {
    DeleteFile(path);
  }
  return mapped;
}

absl::StatusOr<std::unique_ptr<BlobWriter>> WeightCache::Write(const Blob& blob) {
  if (!IsDigest(blob.sha256)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_DIGEST",
                 "\"" + blob.sha256 + "\" is no SHA-256");
  }
  const std::string partial = PathOf(blob.sha256) + kPartial;
  const std::string parent = fs::path(partial).parent_path().string();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) {
    return CacheIoError("cannot make", parent, error.value());
  }
  const int fd = open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return CacheIoError("cannot open", partial, errno);
  }
  struct stat info {};
  if (fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) > blob.bytes &&
      ftruncate(fd, 0) != 0) {
    const int saved = errno;
    close(fd);
    return CacheIoError("cannot truncate", partial, saved);
  }
  auto writer = std::unique_ptr<BlobWriter>(new BlobWriter(this, blob, fd, partial));
  RETURN_IF_ERROR(writer->ReadBack());
  writer->used_ns_ = UsedNs(partial);
  MutexLock lock(&mutex_);
  SetFile(partial, {.bytes = writer->offset(), .used_ns = writer->used_ns_});
  return writer;
}

absl::Status WeightCache::MakeRoom() {
  if (limit_bytes_ == 0) {
    return absl::OkStatus();
  }
  MutexLock lock(&mutex_);
  uint64_t pinned = 0;
  for (const auto& [digest, pin] : pinned_) {
    pinned += pin.bytes;
  }
  if (pinned > limit_bytes_) {
    return Error(absl::StatusCode::kResourceExhausted, "CACHE_LIMIT",
                 "the weights in use need " + FormatSize(pinned) + " of the weight cache")
        .Limit("cache_bytes=" + std::to_string(limit_bytes_))
        .Hint("raise --cache-limit, or give this worker fewer layers");
  }
  const std::vector<std::string> evictable = Evictable();
  uint64_t others = 0;
  for (const std::string& path : evictable) {
    others += files_[path].bytes;
  }
  for (const std::string& path : evictable) {
    if (pinned + others <= limit_bytes_) {
      break;
    }
    ASSIGN_OR_RETURN(const uint64_t bytes, Evict(path));
    others -= bytes;
  }
  return absl::OkStatus();
}

uint64_t WeightCache::FreeDisk(uint64_t bytes) {
  MutexLock lock(&mutex_);
  uint64_t freed = 0;
  for (const std::string& path : Evictable()) {
    if (freed >= bytes) {
      break;
    }
    freed += Evict(path).value_or(0);
  }
  return freed;
}

std::vector<std::string> WeightCache::Evictable() const {
  std::vector<std::tuple<bool, int64_t, std::string>> order;
  for (const auto& [path, file] : files_) {
    const std::string digest = DigestOfPath(path);
    if (pinned_.count(digest) == 0) {
      order.emplace_back(softly_pinned_.count(digest) > 0, file.used_ns, path);
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> paths;
  for (auto& [softly, used, path] : order) {
    paths.push_back(std::move(path));
  }
  return paths;
}

absl::StatusOr<uint64_t> WeightCache::Evict(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return CacheIoError("cannot delete", path, errno);
  }
  const uint64_t bytes = files_[path].bytes;
  verified_.erase(DigestOfPath(path));
  EraseFile(path);
  return bytes;
}

std::optional<Blob> WeightCache::Find(const std::string& sha256) const {
  if (!IsDigest(sha256)) {
    return std::nullopt;
  }
  MutexLock lock(&mutex_);
  const auto it = files_.find(PathOf(sha256));
  return it == files_.end() ? std::nullopt : std::optional(Blob{sha256, it->second.bytes});
}

bool WeightCache::HasPacked(const Blob& packed) const {
  return HasFile(PackedPathOf(packed.sha256), packed.bytes);
}

void WeightCache::DeletePacked(const std::vector<Blob>& packed) {
  for (const Blob& blob : packed) {
    const std::string path = PackedPathOf(blob.sha256);
    {
      // Whoever makes it again from now on makes another file.
      MutexLock lock(&mutex_);
      const bool pinned = pinned_.contains(blob.sha256) || softly_pinned_.contains(blob.sha256);
      if (pinned || rename(path.c_str(), (path + kGone).c_str()) != 0) {
        continue;
      }
      EraseFile(path);
    }
    unlink((path + kGone).c_str());
  }
}

std::vector<std::string> WeightCache::Blobs() const {
  const std::string folder = directory_ + "/sha256/";
  std::vector<std::string> blobs;
  MutexLock lock(&mutex_);
  for (auto it = files_.lower_bound(folder); it != files_.end() && it->first.starts_with(folder);
       ++it) {
    if (!it->first.ends_with(kPartial)) {
      blobs.push_back(DigestOfPath(it->first));
    }
  }
  return blobs;
}

bool WeightCache::HasFile(const std::string& path, uint64_t bytes) const {
  MutexLock lock(&mutex_);
  const auto it = files_.find(path);
  return it != files_.end() && it->second.bytes == bytes;
}

void WeightCache::DeleteFile(const std::string& path) {
  unlink(path.c_str());
  MutexLock lock(&mutex_);
  verified_.erase(DigestOfPath(path));
  EraseFile(path);
}

void WeightCache::TouchFile(const std::string& path, uint64_t bytes) {
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // Of no consequence if it fails.
  const int64_t used_ns = UsedNs(path);
  MutexLock lock(&mutex_);
  SetFile(path, {.bytes = bytes, .used_ns = used_ns});
}

void WeightCache::SetFile(const std::string& path, const File& file) {
  const auto [it, comes] = files_.try_emplace(path);
  changes_ += comes && !path.ends_with(kPartial) ? 1 : 0;
  File& known = it->second;
  bytes_ += file.bytes - known.bytes;  // Modulo 2^64, so it may shrink.
  known = file;
}

void WeightCache::EraseFile(const std::string& path) {
  if (const auto it = files_.find(path); it != files_.end()) {
    bytes_ -= it->second.bytes;
    files_.erase(it);
    changes_ += path.ends_with(kPartial) ? 0 : 1;
  }
}

}  // namespace strata
