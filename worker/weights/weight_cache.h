// Weights on disk by content: DIR/sha256/ab/abcdef..., each file named after the SHA-256 of its
// bytes; abcdef....partial while it is fetched. DIR/packed has what was made of them, see
// packed_files.h. Files are read-only once named, and may be deleted by hand while the worker is
// down.
#ifndef STRATA_WORKER_WEIGHTS_WEIGHT_CACHE_H_
#define STRATA_WORKER_WEIGHTS_WEIGHT_CACHE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/digest.h"
#include "common/mutex.h"

namespace strata {

// Bytes by content.
struct Blob {
  std::string sha256;  // 64 lower-case hex digits.
  uint64_t bytes = 0;
};

class WeightCache;

// A failed system call on a file of the cache: RESOURCE_EXHAUSTED (DISK_FULL), or INTERNAL
// (CACHE_IO). `what` as in "cannot write".
absl::Status CacheIoError(const std::string& what, const std::string& path, int error);

// Keeps blobs, and packed weights by their key, from being evicted; a soft one only as long as
// something else can be.
class CachePin {
 public:
  enum class Kind { kHard, kSoft };
  CachePin(WeightCache* cache, std::vector<Blob> blobs, Kind kind = Kind::kHard);
  ~CachePin();
  CachePin(const CachePin&) = delete;
  CachePin& operator=(const CachePin&) = delete;

 private:
  WeightCache* const cache_;
  const std::vector<Blob> blobs_;
  const Kind kind_;
};

// A verified blob, mapped read-only. Any thread.
class MappedBlob {
 public:
  ~MappedBlob();
  MappedBlob(const MappedBlob&) = delete;
  MappedBlob& operator=(const MappedBlob&) = delete;
  const uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // These bytes need not stay in memory: they come from the file when they are read again.
  void Drop(size_t begin, size_t end) const;

 private:
  friend class WeightCache;
  MappedBlob(const uint8_t* data, size_t bytes) : data_(data), bytes_(bytes) {}
  const uint8_t* const data_;  // nullptr for an empty blob.
  const size_t bytes_;
};

// A blob on its way into the cache. What was written stays for a later writer when this one goes
// without Commit. One thread.
class BlobWriter {
 public:
  ~BlobWriter();
  BlobWriter(const BlobWriter&) = delete;
  BlobWriter& operator=(const BlobWriter&) = delete;

  // Bytes that are there: where to go on.
  uint64_t offset() const { return offset_; }
  // As CacheIoError; DATA_LOSS (BLOB_TOO_LONG) past the blob's end.
  absl::Status Append(std::string_view data);
  // Checks length and digest, makes it durable and names it. DATA_LOSS (BAD_BLOB) when the bytes
  // are others: they are dropped, and the next writer begins at 0. Or as CacheIoError.
  absl::Status Commit();

 private:
  friend class WeightCache;
  BlobWriter(WeightCache* cache, Blob blob, int fd, std::string partial_path);
  absl::Status ReadBack();

  WeightCache* const cache_;
  const Blob blob_;
  const int fd_;
  const std::string partial_path_;
  uint64_t offset_ = 0;
  int64_t used_ns_ = 0;  // When it was last written, roughly.
  Sha256 sha_;
};

// Any thread; but one BlobWriter a blob at a time, which the caller sees to. Outlives what it
// gives out.
class WeightCache {
 public:
  // Uses `directory` (made if it is missing). `limit_bytes` 0: no limit.
  static absl::StatusOr<std::unique_ptr<WeightCache>> Open(const std::string& directory,
                                                           uint64_t limit_bytes);

  // Maps a blob that is there. Its SHA-256 is checked the first time that this process maps it.
  // NOT_FOUND when it is not there; DATA_LOSS (CACHE_CORRUPT) when it was spoilt, and is deleted;
  // INVALID_ARGUMENT (BAD_DIGEST) when it is named by no digest; or as CacheIoError.
  absl::StatusOr<std::unique_ptr<MappedBlob>> Map(const Blob& blob);

  // Maps a blob that Map has mapped, and that was pinned since. Counts as no use of it. As Map, but
  // nothing is checked but its length.
  absl::StatusOr<std::unique_ptr<MappedBlob>> MapAgain(const Blob& blob) const {
    return MapFile(PathOf(blob.sha256), blob);
  }

  // Begins, or goes on with, a blob that is not there. BAD_DIGEST, or as CacheIoError.
  absl::StatusOr<std::unique_ptr<BlobWriter>> Write(const Blob& blob);

  // Evicts what was used longest ago and is not pinned, and then what is pinned softly, until all
  // pinned blobs fit beside what stays. RESOURCE_EXHAUSTED (CACHE_LIMIT) when the hard pins alone
  // exceed the limit.
  absl::Status MakeRoom();
  // The disk is full, whatever the limit: evicts likewise, until `bytes` are free that were not.
  // How many are; fewer where that is all.
  uint64_t FreeDisk(uint64_t bytes);

  // A blob of which all is there, unchecked.
  std::optional<Blob> Find(const std::string& sha256) const;
  // Whether packed weights are there, unchecked.
  bool HasPacked(const Blob& packed) const;
  // Deletes these packed weights, but for what is pinned. Holds nobody up while the disk does it.
  void DeletePacked(const std::vector<Blob>& packed);
  // Digests of all blobs that are there, in order.
  std::vector<std::string> Blobs() const;
  // Counts up when a blob or packed weights come or go.
  uint64_t changes() const { return changes_; }

  // On disk now, partial files included. Never waits for the disk.
  uint64_t bytes() const { return bytes_; }
  const std::string& directory() const { return directory_; }

 private:
  friend class BlobWriter;
  friend class CachePin;
  friend class PackedFiles;
  WeightCache(std::string directory, uint64_t limit_bytes)
      : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

  std::string PathOf(const std::string& sha256) const;
  std::string PackedPathOf(const std::string& key) const;
  absl::Status Scan() STRATA_EXCLUDES(mutex_);
  // Takes up what lies in one folder, or deletes it if it is partial and cannot be gone on with.
  absl::Status ScanFolder(const std::string& folder, bool keep_partial) STRATA_REQUIRES(mutex_);
  absl::StatusOr<std::unique_ptr<MappedBlob>> MapFile(const std::string& path,
                                                      const Blob& blob) const;

  struct File {
    uint64_t bytes = 0;
    int64_t used_ns = 0;  // Modification time.
  };

  // Whether it is there, with so many bytes.
  bool HasFile(const std::string& path, uint64_t bytes) const STRATA_EXCLUDES(mutex_);
  // It was spoilt.
  void DeleteFile(const std::string& path) STRATA_EXCLUDES(mutex_);
  // Counts the file as used now.
  void TouchFile(const std::string& path, uint64_t bytes) STRATA_EXCLUDES(mutex_);
  // Files without a hard pin, in the order in which they are evicted.
  std::vector<std::string> Evictable() const STRATA_REQUIRES(mutex_);
  // How many bytes that freed.
  absl::StatusOr<uint64_t> Evict(const std::string& path) STRATA_REQUIRES(mutex_);
  // Keep `bytes_` true.
  void SetFile(const std::string& path, const File& file) STRATA_REQUIRES(mutex_);
  void EraseFile(const std::string& path) STRATA_REQUIRES(mutex_);

  const std::string directory_;
  const uint64_t limit_bytes_;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> changes_ = 0;
  mutable Mutex mutex_;
  std::map<std::string, File> files_ STRATA_GUARDED_BY(mutex_);  // By path.
  std::set<std::string> verified_ STRATA_GUARDED_BY(mutex_);
  struct Pinned {
    uint64_t count = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Pinned> pinned_ STRATA_GUARDED_BY(mutex_);         // By digest.
  std::map<std::string, Pinned> softly_pinned_ STRATA_GUARDED_BY(mutex_);  // Likewise.
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_WEIGHT_CACHE_H_
