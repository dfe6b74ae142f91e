// The experts of gpt-oss, and those of other mixtures that are fused inputs first
// (common/model/gpt_oss_experts.h), as backends read experts: each a gate, an up and a down matrix
// of its own, in rows of floats or of blocks of MXFP4, and gpt-oss' biases.
#ifndef STRATA_WORKER_BACKEND_GPT_OSS_TENSORS_H_
#define STRATA_WORKER_BACKEND_GPT_OSS_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/model_spec.h"
#include "common/mutex.h"
#include "worker/backend/tensor_source.h"

namespace strata {

// Any thread. What is stored is given up as the experts made of it are released, which a load does
// in their order; each is in memory from when it is found until it is released.
class GptOssTensors : public TensorSource {
 public:
  // Of the layers [first, last]; every other tensor is the source's own. `source` outlives it.
  GptOssTensors(const ModelSpec& spec, uint32_t first, uint32_t last, const TensorSource& source);

  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override;
  absl::Status Prepare(const std::vector<std::string>& names) const override;
  // INVALID_ARGUMENT (TENSOR_SHAPE) where what is stored has another shape or dtype than these
  // have.
  absl::StatusOr<TensorView> Find(std::string_view name) const override;
  void Release(std::string_view name, size_t bytes) const override;

 private:
  // What a tensor is made of: outputs first, first + step, ... of an expert's `columns`.
  struct Made {
    std::string stored;  // The path, without "_blocks" and so on.
    bool bias = false;
    uint64_t expert = 0;
    uint64_t experts = 0;
    uint64_t columns = 0;
    uint64_t outputs = 0;
    uint64_t inputs = 0;
    uint64_t first = 0;
    uint64_t step = 1;
  };
  void AddExpert(const MlpSpec& mlp, uint64_t hidden, const std::string& folder, uint32_t expert);
  void AddTurned(const MlpSpec& mlp, uint64_t hidden, const std::string& layer);
  std::vector<std::string> StoredNames(const Made& made) const;
  absl::StatusOr<std::vector<uint8_t>> Make(const Made& made) const;
  absl::StatusOr<std::vector<uint8_t>> MakeBias(const Made& made) const;
  absl::StatusOr<std::vector<uint8_t>> MakeFloats(const Made& made) const;
  absl::StatusOr<std::vector<uint8_t>> MakeBlocks(const Made& made) const;
  // The source's tensor, which has this shape.
  absl::StatusOr<TensorView> FindStored(const std::string& name,
                                        const std::vector<uint64_t>& shape) const;

  const TensorSource& source_;
  std::map<std::string, Made, std::less<>> made_;  // By name.
  mutable Mutex mutex_;
  mutable std::map<std::string, std::vector<uint8_t>, std::less<>> found_ STRATA_GUARDED_BY(mutex_);
  // Of a stored tensor: how many of those that are made of it were prepared, and released.
  struct Use {
    uint64_t prepared = 0;
    uint64_t released = 0;
  };
  mutable std::map<std::string, Use> uses_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_GPT_OSS_TENSORS_H_
