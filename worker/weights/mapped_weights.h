// A stage's weights as a backend reads them: mapped files of the cache.
#ifndef STRATA_WORKER_WEIGHTS_MAPPED_WEIGHTS_H_
#define STRATA_WORKER_WEIGHTS_MAPPED_WEIGHTS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "worker/backend/tensor_source.h"
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

// Any thread.
class MappedWeights : public TensorSource {
 public:
  using FetchFn =
      std::function<absl::StatusOr<std::shared_ptr<const BlobSet>>(const std::vector<Blob>&)>;

  // `fetch` brings what is prepared.
  MappedWeights(const std::vector<BlobTensor>& tensors, FetchFn fetch);
  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override;
  // Errors: NOT_FOUND (TENSOR_MISSING), or those of `fetch`.
  absl::Status Prepare(const std::vector<std::string>& names) const override;
  // Maps it, until it is released. FAILED_PRECONDITION (TENSOR_UNPREPARED) before its time; or as
  // WeightCache::MapAgain.
  absl::StatusOr<TensorView> Find(std::string_view name) const override;
  // Lets go of pages, and with the last of them of the mapping and its pin, unless another tensor
  // has the same bytes.
  void Release(std::string_view name, size_t bytes) const override;

 private:
  struct Tensor {
    BlobTensor what;
    std::shared_ptr<const HeldBlob> blob;  // While it is prepared.
    std::unique_ptr<MappedBlob> mapped;    // Since it was found.
    size_t released = 0;
  };
  // NOT_FOUND (TENSOR_MISSING).
  absl::StatusOr<Tensor*> Get(std::string_view name) const STRATA_REQUIRES(mutex_);

  const FetchFn fetch_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Tensor, std::less<>> tensors_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_MAPPED_WEIGHTS_H_
