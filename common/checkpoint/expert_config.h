// What config.json says of mixtures of experts. Internal to the parser.
#ifndef STRATA_COMMON_CHECKPOINT_EXPERT_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_EXPERT_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace strata {

// Their number, by the names that transformers 4 and 5 have written it by: of each family with
// experts one or two, of all families these.
inline constexpr const char* kExpertCountFields[] = {"num_experts", "num_local_experts",
                                                     "n_routed_experts"};

// How a family describes its experts: fields, and the defaults of transformers.
struct ExpertRule {
  // Of their number, one of kExpertCountFields, any of which is read; null: the family has none.
  const char* experts_field = nullptr;
  uint32_t experts = 0;
  uint32_t used = 0;                // num_experts_per_tok.
  const char* ffn_field = nullptr;  // Of the width within one.
  uint32_t ffn = 0;                 // 0: the field is required.
  ExpertNames names = ExpertNames::kMlp;
  RouterScores scores = RouterScores::kSoftmax;
  bool renormalizes = false;  // Always; else by norm_topk_prob.
  bool biases = false;        // Of router and experts.
  bool corrected = false;     // RouterSpec::corrected; of DeepSeek's third version always.
  bool clamps = false;        // By swiglu_limit, with swiglu_alpha.
  // Which layers are mixtures, decoder_sparse_step and mlp_only_layers say; else all are.
  bool chooses_layers = false;
  // DeepSeek's: the first first_k_dense_replace layers are dense, experts may come in groups
  // (topk_method, n_group, topk_group), what is chosen counts routed_scaling_factor times as much,
  // and n_shared_experts experts, which are stored as one, compute every row. With kSigmoid its
  // third version, whose scores have corrections.
  bool deepseek = false;
};

// By layer: its MLP, which is `dense` but where it is a mixture.
absl::StatusOr<std::vector<MlpSpec>> ReadMlps(const nlohmann::json& config, const ExpertRule& rule,
                                              uint64_t layers, const MlpSpec& dense);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_EXPERT_CONFIG_H_
