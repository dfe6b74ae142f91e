#include "common/model/gpt_oss_experts.h"

namespace strata {
namespace {

constexpr std::string_view kGateUp = ".mlp.experts.gate_up_proj";
constexpr std::string_view kDown = ".mlp.experts.down_proj";

// Whether a name is one of the two, and `suffix`.
bool IsExperts(std::string_view tensor, std::string_view suffix) {
  if (!tensor.ends_with(suffix)) {
    return false;
  }
  tensor.remove_suffix(suffix.size());
  return tensor.ends_with(kGateUp) || tensor.ends_with(kDown);
}

}  // namespace

bool IsMxfp4Blocks(std::string_view tensor) { return IsExperts(tensor, "_blocks"); }
bool IsMxfp4Scales(std::string_view tensor) { return IsExperts(tensor, "_scales"); }

Dtype LoadedDtype(std::string_view tensor, Dtype dtype) {
  return IsMxfp4Blocks(tensor) ? Dtype::kMXFP4 : dtype;
}

FusedPaths FusedExpertPaths(ExpertNames names, std::string_view layer) {
  const std::string mlp = std::string(layer) + "mlp.";
  return {mlp + "experts.gate_up_proj", mlp + "experts.down_proj", mlp + "gate",
          names == ExpertNames::kBlockSparse ? mlp + "e_score_correction_bias"
                                             : CorrectionName(names, layer)};
}

FusedInputsFirst FusedInputsFirstOf(uint64_t hidden, uint64_t ffn,
                                    const std::vector<uint64_t>& gate_up,
                                    const std::vector<uint64_t>& down) {
  const auto lies = [](const std::vector<uint64_t>& shape, uint64_t rows, uint64_t columns) {
    return shape.size() == 3 && shape[1] == rows && shape[2] == columns;
  };
  return {hidden != 2 * ffn && lies(gate_up, hidden, 2 * ffn),
          hidden != ffn && lies(down, ffn, hidden)};
}

ExpertPaths MlxGptOssPaths(std::string_view layer) {
  const std::string experts = std::string(layer) + "mlp.experts.";
  return {experts + "gate_proj", experts + "up_proj", experts + "down_proj"};
}

MatrixShape MatrixShapeOf(std::string_view tensor, const std::vector<uint64_t>& shape,
                          bool inputs_first) {
  const bool blocks = IsMxfp4Blocks(tensor);
  if (blocks ? shape.size() == 4 : IsExperts(tensor, "") && shape.size() == 3) {
    const bool turned = inputs_first && !blocks;
    const uint64_t outputs = turned ? shape[2] : shape[1];
    const uint64_t inputs = blocks ? shape[2] * 32 : turned ? shape[1] : shape[2];
    const uint64_t each = tensor.find(kGateUp) == std::string_view::npos ? 1 : 2;
    return {shape[0] * each, outputs / each, inputs};
  }
  if (!tensor.ends_with(".weight") || shape.size() < 2 || shape.size() > 3) {
    return {};
  }
  return {shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back()};
}

}  // namespace strata
