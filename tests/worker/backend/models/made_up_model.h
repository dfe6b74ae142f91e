// Models that no file describes: any shape, random weights, and a plain program in double that
// says what they give.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_MADE_UP_MODEL_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_MADE_UP_MODEL_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "worker/backend/tensor_source.h"

namespace strata::testing {

struct MadeUpShape {
  uint32_t layers = 2;
  uint32_t hidden = 40;
  uint32_t heads = 6;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 24;
  uint32_t rotary_dim = 24;
  uint32_t ffn = 50;
  uint32_t vocab = 37;
  uint32_t context = 2048;
  bool tied = false;
  bool biases = false;
  NormKind norm = NormKind::kRms;
  Dtype dtype = Dtype::kBF16;
  uint32_t seed = 1;
  std::vector<uint32_t> windows = {};  // Of layers in turn; 0: sees every key. Empty: all do.
  float soft_cap = 0;                  // Of scores.
  float final_soft_cap = 0;
  ActivationKind activation = ActivationKind::kSilu;
  bool sinks = false;
  uint32_t experts = 0;  // Of every layer but the first; 0: all are dense.
  RouterSpec router = {};
  LatentSpec latent = {};  // With a rank: in place of head_dim and what rotates.
};

// Tensors in memory, with their values beside them.
class MadeUpModel : public TensorSource {
 public:
  explicit MadeUpModel(const MadeUpShape& shape);

  const ModelSpec& spec() const { return spec_; }
  absl::StatusOr<TensorView> Find(std::string_view name) const override;

  // To make what must be refused.
  void Remove(const std::string& name) { tensors_.erase(name); }
  TensorView& Edit(const std::string& name) { return tensors_.at(name).view; }

  // Logits of every row, [ids][vocab], computed in double from the first token on.
  std::vector<double> PlainLogits(std::span<const uint32_t> ids) const;

 private:
  struct Tensor {
    std::string bytes;
    std::vector<double> values;
    TensorView view;
  };
  void Add(const std::string& name, std::vector<uint64_t> shape, Dtype dtype, float scale,
           float center = 0);
  const std::vector<double>& Values(const std::string& name) const {
    return tensors_.at(name).values;
  }
  using Rows = std::vector<std::vector<double>>;
  Rows Linear(const Rows& x, const std::string& name) const;
  Rows Norm(const Rows& x, const std::string& name, NormKind kind, float eps) const;
  // Turns q or k by the positions of its rows.
  void Rotate(const AttentionSpec& attention, Rows* rows) const;
  // With keys and values made of the latent vectors, as they are defined.
  Rows LatentAttention(const Rows& x, uint32_t layer) const;
  Rows Attention(const Rows& x, uint32_t layer) const;
  // `names` of gate, up and down.
  Rows GatedMlp(const Rows& x, const ExpertPaths& names, const MlpSpec& mlp) const;
  Rows Mlp(const Rows& x, uint32_t layer) const;
  Rows Mixture(const Rows& x, uint32_t layer) const;

  ModelSpec spec_;
  uint32_t state_;
  std::map<std::string, Tensor> tensors_;
};

// Shapes without a golden file: tails everywhere, biases, one-plus norms, partial rotation,
// windows, soft-caps, GELU, latent vectors and mixtures of experts.
std::vector<MadeUpShape> MadeUpShapes();

// Token ids without a pattern.
std::vector<uint32_t> SomeIds(uint32_t count, uint32_t vocab);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_MADE_UP_MODEL_H_
