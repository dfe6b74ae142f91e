// Reads blobs from any worker that has them: the coordinator says which, and sends what none has.
#ifndef STRATA_WORKER_WEIGHTS_SOURCED_BLOBS_H_
#define STRATA_WORKER_WEIGHTS_SOURCED_BLOBS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "worker/weights/blob_fetcher.h"

namespace strata {

// A worker that has a blob, or is being sent it.
struct WeightSource {
  std::string node;
  uint64_t incarnation = 0;
  std::string address;  // host:port.
};

// How coordinator and workers are asked. Any thread.
class WeightSources {
 public:
  using ChunkFn = BlobClient::ChunkFn;
  virtual ~WeightSources() = default;
  // As BlobClient::Fetch; or, if `sources` is given, names workers there instead of giving bytes,
  // best first and none of `not_from`.
  virtual absl::Status FromCoordinator(const std::string& sha256, uint64_t offset,
                                       const std::vector<std::string>& not_from,
                                       std::vector<WeightSource>* sources, const ChunkFn& sink,
                                       Cancellation* cancel) = 0;
  // As BlobClient::Fetch, but ends after `timeout`, DEADLINE_EXCEEDED, whatever came by then.
  // NOT_FOUND, or UNAVAILABLE (BLOB_ON_ITS_WAY, with how many bytes it has as the fact "bytes"), if
  // it has not all of it.
  virtual absl::Status FromWorker(const WeightSource& source, const std::string& sha256,
                                  uint64_t offset, std::chrono::milliseconds timeout,
                                  const ChunkFn& sink, Cancellation* cancel) = 0;
};

struct SourcedBlobsOptions {
  // How long one call to a worker may take. One that has brought less than `least_bytes` by then is
  // left.
  std::chrono::milliseconds call_timeout{5000};
  uint64_t least_bytes = uint64_t{2} << 20;
  // How long a worker that is being sent the blob may take for `least_bytes` more of it, and how
  // long it is waited for in all.
  std::chrono::milliseconds patience{5000};
  std::chrono::milliseconds longest_wait{600'000};
  std::chrono::milliseconds look_again{50};
  // How long a worker that was left is not asked.
  std::chrono::milliseconds rest{30'000};
};

// Any thread. What a worker gives is checked by whoever fetches, as what the coordinator gives; a
// worker that gave all of a blob that had another digest is not asked again in its life. Where
// several gave some of it, nobody knows which was wrong: that blob alone comes from the
// coordinator.
class SourcedBlobs : public BlobClient {
 public:
  // `log` gets a line for what people should know.
  SourcedBlobs(WeightSources* sources, const SourcedBlobsOptions& options,
               std::function<void(const std::string&)> log)
      : sources_(sources), options_(options), log_(std::move(log)) {}

  absl::Status Fetch(const std::string& sha256, uint64_t offset, const ChunkFn& sink,
                     Cancellation* cancel) override;
  bool OnBad(const std::string& sha256) override;

  // Since the start.
  uint64_t from_workers_bytes() const { return from_workers_bytes_; }
  uint64_t bad_blobs() const { return bad_blobs_; }

 private:
  // A blob on its way.
  struct Transfer {
    const std::string& sha256;
    uint64_t offset;
    const ChunkFn& sink;
    absl::Status sunk;  // The sink's own error.
  };
  using Life = std::pair<std::string, uint64_t>;  // A node and its incarnation.

  bool MayAsk(const WeightSource& source) const;
  // Workers that are not asked now.
  std::vector<std::string> Resting() const;
  void Leave(const WeightSource& source, const std::string& sha256, const absl::Status& why);
  // Until all of the blob has come, or the source is of no use.
  absl::Status FromOne(const WeightSource& source, Transfer* transfer, Cancellation* cancel);

  WeightSources* const sources_;
  const SourcedBlobsOptions options_;
  const std::function<void(const std::string&)> log_;
  std::atomic<uint64_t> from_workers_bytes_{0};
  std::atomic<uint64_t> bad_blobs_{0};

  mutable Mutex mutex_;
  std::set<Life> liars_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, std::chrono::steady_clock::time_point> resting_
      STRATA_GUARDED_BY(mutex_);  // By node: until when.
  // Who gave some of a blob that is not known to be right, by digest; of a partial file that was
  // there already, nobody knows: kUnknown.
  std::map<std::string, std::set<Life>> givers_ STRATA_GUARDED_BY(mutex_);
  // Blobs that only the coordinator is asked for.
  std::set<std::string> distrusted_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_SOURCED_BLOBS_H_
