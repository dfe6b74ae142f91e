// Mixtures of experts, as data: how a layer's router chooses, and what its tensors are called.
#ifndef STRATA_COMMON_MODEL_EXPERT_SPEC_H_
#define STRATA_COMMON_MODEL_EXPERT_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// The most groups that experts come in.
inline constexpr uint32_t kMostExpertGroups = 64;

// What a router's logits say of the experts.
enum class RouterScores {
  kSoftmax,          // Over all experts.
  kSoftmaxOfChosen,  // Over those that are chosen, by their logits.
  kSigmoid,          // Each by itself.
};

// Chooses, for each row, `used` experts: those of the largest scores, of equal ones the lowest ids.
// Their scores, times `scale`, are what their outputs are multiplied by, before these are added.
struct RouterSpec {
  uint32_t used = 0;
  RouterScores scores = RouterScores::kSoftmax;
  bool renormalize = false;  // The scores of those chosen are divided by their sum.
  bool bias = false;         // Added to the logits.
  // What chooses is the score plus a number of the expert's ("e_score_correction_bias").
  bool corrected = false;
  // Experts come in groups of equal numbers, one after another. Only those of `groups_used` groups
  // are chosen: of the largest sums of the `group_best` largest in a group.
  uint32_t groups = 1;
  uint32_t groups_used = 1;
  uint32_t group_best = 1;
  float scale = 1;
};

// Names below "model.layers.N.": "mlp.gate", "mlp.experts.E.{gate,up,down}_proj", or
// "block_sparse_moe.gate", "block_sparse_moe.experts.E.{w1,w3,w2}". Where "switch_mlp.gate_proj"
// stands beside the router, all experts are in the tensors "switch_mlp.{gate,up,down}_proj",
// [experts, outputs, inputs], instead. kGptOss: "mlp.router", and experts as in
// common/model/gpt_oss_experts.h, which backends see as those of kMlp.
enum class ExpertNames { kMlp, kBlockSparse, kGptOss };

// Paths of matrices, without ".weight".
struct ExpertPaths {
  std::string gate;
  std::string up;
  std::string down;
};
// `layer` is "model.layers.N." with the decoder's prefix.
std::string RouterPath(ExpertNames names, std::string_view layer);
// The tensor of RouterSpec::corrected: "mlp.gate.e_score_correction_bias", or
// "block_sparse_moe.e_score_correction_bias".
std::string CorrectionName(ExpertNames names, std::string_view layer);
// "mlp.shared_experts.{gate,up,down}_proj": of one dense likeness of an expert, which computes
// every row.
ExpertPaths SharedExpertPaths(std::string_view layer);
ExpertPaths ExpertPathsOf(ExpertNames names, std::string_view layer, uint32_t expert);
ExpertPaths StackedExpertPaths(ExpertNames names, std::string_view layer);

// Whether a tensor is a router's weight: it stays as it is stored where others are quantized.
bool IsRouter(std::string_view tensor);
// Whether a tensor is one of the experts', of which a row reads only those that it is routed to.
bool IsOfExperts(std::string_view tensor);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_EXPERT_SPEC_H_
