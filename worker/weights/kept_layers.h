// Which layers a cache has all that a load of them reads: DIR/layers/ab/abcdef... of a WeightCache,
// each file named after its LayerWeightsKey (common/layer_weights.h), with the packed files and the
// blobs that the newest load of the layer left. A line each: "packed" or "blob", digest, bytes.
#ifndef STRATA_WORKER_WEIGHTS_KEPT_LAYERS_H_
#define STRATA_WORKER_WEIGHTS_KEPT_LAYERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "worker/weights/weight_cache.h"

namespace strata {

// What a load of one layer reads.
struct KeptLayer {
  std::vector<Blob> packed;  // By key, with the files' sizes.
  std::vector<Blob> blobs;   // Of tensors that are not kept packed.
};

// The text of such a file. `layout`: how this worker packs, at most 64 characters; a file of
// another one is of no use.
std::string KeptLayerText(const KeptLayer& layer, std::string_view layout);
// DATA_LOSS (CACHE_CORRUPT) for what is none; nullopt: of another layout.
absl::StatusOr<std::optional<KeptLayer>> ParseKeptLayer(std::string_view text,
                                                        std::string_view layout);

// Any thread.
class KeptLayers {
 public:
  // Layers that are remembered; more are not.
  static constexpr size_t kMostLayers = 65'536;

  // Takes up what earlier processes left, and deletes what is of no use any more. `cache` outlives
  // it.
  KeptLayers(WeightCache* cache, std::string layout);

  // A load has left this. A disk that is full costs the next process' knowledge of it alone.
  void Record(const std::string& key, KeptLayer layer);
  // If all of it is still there, unchecked.
  std::optional<KeptLayer> Find(const std::string& key) const;
  // Keys of all that Find finds, in order.
  std::vector<std::string> Keys() const;
  // Counts up with each Record.
  uint64_t changes() const;

 private:
  std::string PathOf(const std::string& key) const;
  bool IsThere(const KeptLayer& layer) const;

  WeightCache* const cache_;
  const std::string layout_;
  Mutex writing_;  // A file; taken before `mutex_`, which is never held meanwhile.
  mutable Mutex mutex_;
  std::map<std::string, KeptLayer> layers_ STRATA_GUARDED_BY(mutex_);  // By key.
  uint64_t changes_ STRATA_GUARDED_BY(mutex_) = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_KEPT_LAYERS_H_
