#include "common/model/expert_spec.h"

#include "absl/strings/str_cat.h"
#include "common/model/stored_matrix.h"

namespace strata {
namespace {

std::string Folder(ExpertNames names, std::string_view layer) {
  return std::string(layer) + (names == ExpertNames::kBlockSparse ? "block_sparse_moe." : "mlp.");
}

}  // namespace

std::string RouterPath(ExpertNames names, std::string_view layer) {
  return Folder(names, layer) + (names == ExpertNames::kGptOss ? "router" : "gate");
}

std::string CorrectionName(ExpertNames names, std::string_view layer) {
  return (names == ExpertNames::kBlockSparse ? Folder(names, layer)
                                             : RouterPath(names, layer) + ".") +
         "e_score_correction_bias";
}

ExpertPaths ExpertPathsOf(ExpertNames names, std::string_view layer, uint32_t expert) {
  const std::string path = absl::StrCat(Folder(names, layer), "experts.", expert, ".");
  if (names == ExpertNames::kBlockSparse) {
    return {path + "w1", path + "w3", path + "w2"};
  }
  return {path + "gate_proj", path + "up_proj", path + "down_proj"};
}

ExpertPaths SharedExpertPaths(std::string_view layer) {
  const std::string path = std::string(layer) + "mlp.shared_experts.";
  return {path + "gate_proj", path + "up_proj", path + "down_proj"};
}

ExpertPaths StackedExpertPaths(ExpertNames names, std::string_view layer) {
  const std::string path = Folder(names, layer) + "switch_mlp.";
  return {path + "gate_proj", path + "up_proj", path + "down_proj"};
}

bool IsRouter(std::string_view tensor) {
  const std::string_view path = PathOfWeights(tensor);
  return path.ends_with(".mlp.gate") || path.ends_with(".block_sparse_moe.gate") ||
         path.ends_with(".mlp.router");
}

bool IsOfExperts(std::string_view tensor) {
  return tensor.find(".experts.") != std::string_view::npos ||
         tensor.find(".switch_mlp.") != std::string_view::npos;
}

}  // namespace strata
