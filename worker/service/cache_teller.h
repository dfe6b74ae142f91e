// Says to the coordinator what this worker's cache has of weights, and what has changed since.
#ifndef STRATA_WORKER_SERVICE_CACHE_TELLER_H_
#define STRATA_WORKER_SERVICE_CACHE_TELLER_H_

#include <chrono>
#include <cstdint>
#include <set>
#include <vector>

#include "strata/v1/membership.pb.h"
#include "worker/weights/kept_layers.h"
#include "worker/weights/weight_cache.h"

namespace strata {

// One thread.
class CacheTeller {
 public:
  static constexpr size_t kMostTold = 65'536;     // Of blobs, and of layers.
  static constexpr size_t kMostInMessage = 8192;  // Of both together.

  // Both outlive it.
  CacheTeller(const WeightCache* cache, const KeptLayers* layers)
      : cache_(cache), layers_(layers) {}

  // What is to be said in the life with this incarnation: all of it first, then changes. Nothing
  // while looking for changes again would take much of the time.
  std::vector<v1::WorkerMessage> Changes(uint64_t incarnation);

 private:
  const WeightCache* const cache_;
  const KeptLayers* const layers_;
  uint64_t told_incarnation_ = 0;
  uint64_t cache_changes_ = 0;
  uint64_t layer_changes_ = 0;
  std::chrono::steady_clock::time_point not_before_{};
  std::set<uint64_t> blobs_;
  std::set<uint64_t> told_layers_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_CACHE_TELLER_H_
