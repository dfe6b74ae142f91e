// Packed weights on disk: DIR/packed/ab/abcdef... of a WeightCache, each file named after its key.
// They share the cache's limit and are evicted as blobs are.
//
// A file is the packed bytes; the CRC-32C of every MiB of them, 4 bytes each, little-endian; and
// the CRC-32C of the key and those. It is not synced when it is written: what a crash leaves is
// found by length and checksums.
#ifndef STRATA_WORKER_WEIGHTS_PACKED_FILES_H_
#define STRATA_WORKER_WEIGHTS_PACKED_FILES_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/backend/packed_store.h"
#include "worker/weights/weight_cache.h"

namespace strata {

// What one load reads and writes. While it lives, the files that it has read, written or found
// stay. One thread.
class PackedFiles : public PackedStore {
 public:
  // `cache` outlives it. `log` gets a line for what people should know: a spoilt file, and once
  // why nothing can be kept. Unless it `maps`, Map copies: whoever loads is in no hurry, and has
  // all in memory of its own by then.
  PackedFiles(WeightCache* cache, std::function<void(const std::string&)> log, bool maps = true)
      : cache_(cache), log_(std::move(log)), maps_(maps) {}

  bool Has(const PackedForm& form) override;
  // DATA_LOSS (CACHE_CORRUPT) or INTERNAL (CACHE_IO): the file is deleted.
  absl::Status Read(const PackedForm& form, std::span<uint8_t> out, const SplitFn& split) override;
  absl::StatusOr<bool> Map(const PackedForm& form, std::span<uint8_t> out,
                           const SplitFn& split) override;
  // Nothing more is written after a failure, so that a full disk costs one try.
  void Write(const PackedForm& form, std::span<const uint8_t> packed) override;

  // Packed weights that Read or Map gave.
  uint64_t read_bytes() const { return read_bytes_; }
  // The files, as CachePin wants them, and the digests of what they were made of.
  std::vector<Blob> files() const;
  const std::set<std::string>& sources() const { return sources_; }
  // Those of the files that were made of one of `tensors`, digests.
  std::vector<Blob> FilesOf(const std::set<std::string>& tensors) const;
  // Those that Write made.
  const std::vector<Blob>& written() const { return written_; }
  // Why nothing more is kept; ok: it is.
  const absl::Status& write_status() const { return write_status_; }

 private:
  // Whether `out` is a map of it, which it is at most where it may be one.
  absl::StatusOr<bool> Get(const PackedForm& form, std::span<uint8_t> out, const SplitFn& split,
                           bool may_map);
  absl::StatusOr<bool> GetFile(const std::string& path, const PackedForm& form,
                               std::span<uint8_t> out, const SplitFn& split, bool may_map) const;
  absl::Status WriteFile(const std::string& path, const PackedForm& form,
                         std::span<const uint8_t> packed) const;

  struct File {
    Blob blob;
    std::unique_ptr<CachePin> pin;
    std::vector<std::string> sources;
  };
  File Pin(const PackedForm& form) const;

  WeightCache* const cache_;
  const std::function<void(const std::string&)> log_;
  const bool maps_;
  std::map<std::string, File> files_;  // By key.
  std::set<std::string> sources_;
  std::vector<Blob> written_;
  uint64_t read_bytes_ = 0;
  absl::Status write_status_;
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_PACKED_FILES_H_
