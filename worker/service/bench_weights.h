// Weights to measure with: random ones of a named shape, or a checkpoint's.
#ifndef STRATA_WORKER_SERVICE_BENCH_WEIGHTS_H_
#define STRATA_WORKER_SERVICE_BENCH_WEIGHTS_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/mapped_file.h"
#include "worker/backend/tensor_source.h"

namespace strata {

// "tiny11", "l321b" or "l318b"; INVALID_ARGUMENT names those there are.
absl::StatusOr<ModelSpec> ShapeSpec(std::string_view shape);

// bfloat16 matrices of small random numbers, norms of ones. Immutable; any thread.
class RandomWeights : public TensorSource {
 public:
  explicit RandomWeights(const std::vector<StageTensor>& tensors);
  absl::StatusOr<TensorView> Find(std::string_view name) const override;

 private:
  // All matrices begin with the same numbers: a backend copies them, so none shares memory.
  std::vector<uint16_t> matrix_;
  std::vector<uint16_t> ones_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

// A checkpoint folder's tensors, mapped. Immutable; any thread.
class CheckpointWeights : public TensorSource {
 public:
  static absl::StatusOr<std::unique_ptr<CheckpointWeights>> Open(const Checkpoint& checkpoint);
  absl::StatusOr<TensorView> Find(std::string_view name) const override;

 private:
  CheckpointWeights() = default;
  std::map<std::string, MappedFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_BENCH_WEIGHTS_H_
