// A made-up model whose matrices are random blocks.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_BLOCK_MODEL_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_BLOCK_MODEL_H_

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "common/checkpoint/checkpoint.h"
#include "tests/worker/backend/models/made_up_model.h"

namespace strata::testing {

// A format, and scales that make weights of about 0.1 at most: at places of a block fp16 numbers,
// float32 ones, or bytes; and a float32 of each row, if it has one.
struct BlockCase {
  Dtype dtype;
  std::map<size_t, float> scales = {};
  std::map<size_t, float> floats = {};
  std::map<size_t, uint8_t> bytes = {};
  float row = 0;
};
// Every format of blocks.
std::span<const BlockCase> BlockCases();

// Its rows of q and k lie in pairs; or, `plain`, the same weights are floats, in order. With
// `experts` its last layer is a mixture of so many.
class BlockModel : public TensorSource {
 public:
  BlockModel(const BlockCase& one, bool tied, bool plain, uint32_t experts = 0);
  const ModelSpec& spec() const { return spec_; }
  absl::StatusOr<TensorView> Find(std::string_view name) const override;

 private:
  void Add(const BlockCase& one, const StageTensor& tensor, bool plain);

  const MadeUpModel made_;
  ModelSpec spec_;
  std::map<std::string, std::string> bytes_;
  std::map<std::string, TensorView> views_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_BLOCK_MODEL_H_
