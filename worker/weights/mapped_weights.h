// A stage's weights as a backend reads them: mapped files of the cache.
#ifndef STRATA_WORKER_WEIGHTS_MAPPED_WEIGHTS_H_
#define STRATA_WORKER_WEIGHTS_MAPPED_WEIGHTS_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/weights/blob_fetcher.h"

namespace strata {

// A tensor by content.
struct BlobTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  Blob blob;
};

// Checks dtype's name, and that shape times its size is `bytes`. INVALID_ARGUMENT (BAD_TENSOR)
// names the tensor.
absl::StatusOr<BlobTensor> MakeBlobTensor(std::string_view name, std::string_view dtype,
                                          std::vector<uint64_t> shape, std::string_view sha256,
                                          uint64_t bytes);

// Immutable; any thread.
class MappedWeights : public TensorSource {
 public:
  // Every tensor's blob is in `blobs`.
  MappedWeights(const std::vector<BlobTensor>& tensors, std::shared_ptr<const BlobSet> blobs);
  absl::StatusOr<TensorView> Find(std::string_view name) const override;

 private:
  const std::shared_ptr<const BlobSet> blobs_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_MAPPED_WEIGHTS_H_
