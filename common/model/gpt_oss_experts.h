// Matrices in tensors, and fused experts. Those of gpt-oss are stored in ways of their own. Below
// "model.layers.N.mlp.experts.", gate and up alternating among their outputs:
//   floats: gate_up_proj [experts, hidden, 2 ffn], down_proj [experts, ffn, hidden];
//   MXFP4:  gate_up_proj_blocks [experts, 2 ffn, hidden / 32, 16], _scales [experts, 2 ffn, hidden
//   /
//           32], and down_proj_... [experts, hidden, ffn / 32, ...], of bytes: 32 4-bit floats to
//           an exponent, of two in a byte the first in the low half;
//   both:   gate_up_proj_bias [experts, 2 ffn], down_proj_bias [experts, hidden].
// GGUF files have them as those of other mixtures instead: "switch_mlp" of
// common/model/expert_spec.h, with biases [experts, outputs]; MLX has the same three tensors as
// "mlp.experts.gate_proj.weight".
//
// The experts of other mixtures may be fused too, as transformers 5 computes them and saves them on
// demand: gate_up_proj [experts, 2 ffn, hidden], the rows of gate before those of up, and down_proj
// [experts, hidden, ffn]; the router is "mlp.gate" then, whatever it is called elsewhere. Those of
// Qwen3-VL's mixtures are stored inputs first, [experts, hidden, 2 ffn] and [experts, ffn, hidden];
// transformers 5 reads either, by the shape.
#ifndef STRATA_COMMON_MODEL_GPT_OSS_EXPERTS_H_
#define STRATA_COMMON_MODEL_GPT_OSS_EXPERTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/dtype.h"
#include "common/model/expert_spec.h"

namespace strata {

// The matrices in a tensor: "PATH.weight" [outputs, inputs], or of one expert after another
// [experts, outputs, inputs]; or fused experts, gate and up each for itself. `inputs_first`: as
// gpt-oss' floats are, [experts, inputs, outputs].
struct MatrixShape {
  uint64_t matrices = 0;  // 0: it holds none.
  uint64_t outputs = 0;
  uint64_t inputs = 0;
};
MatrixShape MatrixShapeOf(std::string_view tensor, const std::vector<uint64_t>& shape,
                          bool inputs_first);

// Tensors of fused experts of layers whose names begin with `layer`, "model.layers.N."; of the
// router its path, without ".weight".
struct FusedPaths {
  std::string gate_up;
  std::string down;
  std::string router;
  std::string correction;  // CorrectionName of those that are not fused.
};
FusedPaths FusedExpertPaths(ExpertNames names, std::string_view layer);

// Which of the two tensors of fused experts lie inputs first, by their shapes. One whose shape fits
// either way does not: so transformers 5 reads it, and so it writes it.
struct FusedInputsFirst {
  bool gate_up = false;
  bool down = false;
};
FusedInputsFirst FusedInputsFirstOf(uint64_t hidden, uint64_t ffn,
                                    const std::vector<uint64_t>& gate_up,
                                    const std::vector<uint64_t>& down);
// "mlp.experts.{gate,up,down}_proj", as MLX stacks gpt-oss' experts.
ExpertPaths MlxGptOssPaths(std::string_view layer);

// Whether a tensor is gpt-oss' blocks of MXFP4, or their scales.
bool IsMxfp4Blocks(std::string_view tensor);
bool IsMxfp4Scales(std::string_view tensor);
// The dtype that its matrices are loaded from: kMXFP4 for blocks, else its own.
Dtype LoadedDtype(std::string_view tensor, Dtype dtype);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_GPT_OSS_EXPERTS_H_
