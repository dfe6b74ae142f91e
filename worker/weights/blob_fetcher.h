// Brings blobs into the cache, from wherever a BlobClient reads them.
#ifndef STRATA_WORKER_WEIGHTS_BLOB_FETCHER_H_
#define STRATA_WORKER_WEIGHTS_BLOB_FETCHER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "worker/weights/cancellation.h"
#include "worker/weights/weight_cache.h"

namespace strata {

// A source of blobs. Any thread.
class BlobClient {
 public:
  using ChunkFn = std::function<absl::Status(std::string_view)>;
  virtual ~BlobClient() = default;
  // Gives `sink` the blob's bytes from `offset` to its end, in order. An error of `sink` ends it
  // and is returned. Returns soon after `cancel`. Ends with an error sooner or later when no bytes
  // come.
  virtual absl::Status Fetch(const std::string& sha256, uint64_t offset, const ChunkFn& sink,
                             Cancellation* cancel) = 0;
  // The bytes that came had another digest, were too many, and are thrown away, or were too few.
  // Whether the next Fetch will ask elsewhere.
  virtual bool OnBad(const std::string& sha256) { return false; }
};

// Counts of the Fetches that are given it, for whoever reports them. Written by their threads.
struct FetchProgress {
  std::atomic<uint64_t> total_bytes{0};
  std::atomic<uint64_t> done_bytes{0};     // In the cache and right, or on the way.
  std::atomic<uint64_t> fetched_bytes{0};  // Came over the network.
};

struct FetcherOptions {
  int parallel = 4;  // Transfers of one Fetch.
  // Tries of one blob in a row that brought nothing.
  int max_idle_tries = 8;
  // Before another try; doubled after each that brought nothing.
  std::chrono::milliseconds first_backoff{100};
  std::chrono::milliseconds max_backoff{3000};
};

// A blob that is pinned. Any thread.
class HeldBlob {
 public:
  HeldBlob(WeightCache* cache, const Blob& blob)
      : cache_(cache), blob_(blob), pin_(cache, {blob}) {}
  uint64_t bytes() const { return blob_.bytes; }
  // As WeightCache::MapAgain. A process has tens of thousands of mappings, and a stage may have
  // more tensors.
  absl::StatusOr<std::unique_ptr<MappedBlob>> Map() const { return cache_->MapAgain(blob_); }

 private:
  WeightCache* const cache_;
  const Blob blob_;
  const CachePin pin_;
};

// Blobs that are cached, verified and pinned. Immutable; any thread.
class BlobSet {
 public:
  // nullptr when it is not of the set; else stays pinned also when the set is gone.
  std::shared_ptr<const HeldBlob> Find(const std::string& sha256) const;

 private:
  friend class BlobFetcher;
  std::map<std::string, std::shared_ptr<const HeldBlob>> blobs_;
};

// Any thread; two calls that want one blob fetch it once.
class BlobFetcher {
 public:
  // `cache` outlives the fetcher and the sets.
  BlobFetcher(WeightCache* cache, const FetcherOptions& options)
      : cache_(cache), options_(options) {}

  // Makes all of `blobs` present. What is cached is verified; what is missing, partial or spoilt
  // is fetched, a broken transfer resumed. `log` gets a line for what people should know (a
  // corrupted file, a retry). CANCELLED after `cancel`. Other errors: CACHE_LIMIT, DISK_FULL,
  // BAD_BLOB (the source's bytes are wrong), or the source's own.
  absl::StatusOr<std::shared_ptr<const BlobSet>> Fetch(
      const std::vector<Blob>& blobs, BlobClient* client, FetchProgress* progress,
      Cancellation* cancel, const std::function<void(const std::string&)>& log);

  // How many bytes are there of a blob that is being fetched; nullopt: it is not.
  std::optional<uint64_t> OnItsWay(const std::string& sha256) const;

  // Over all calls, since the start.
  uint64_t fetched_bytes() const { return fetched_bytes_; }

 private:
  struct Job;
  void Work(Job* job);
  absl::Status FetchOne(Job* job, const Blob& blob);
  absl::Status Transfer(Job* job, const Blob& blob);
  absl::Status Try(Job* job, const Blob& blob, uint64_t* brought, uint64_t* counted);

  WeightCache* const cache_;
  const FetcherOptions options_;
  std::atomic<uint64_t> fetched_bytes_{0};
  mutable Mutex mutex_;
  CondVar changed_;
  // Blobs that a Fetch looks after, by digest, with how many bytes are there.
  std::map<std::string, std::atomic<uint64_t>> busy_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_BLOB_FETCHER_H_
