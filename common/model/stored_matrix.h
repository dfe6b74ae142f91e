// Matrices as tools quantize them, each in several tensors of a checkpoint. The formats; words are
// of 32 bits, and what is packed begins with the lowest bits:
// - MLX (mlx.core.quantize): weight, words [outputs, inputs * bits / 32], a row being one chain of
//   bits. Mode affine: integers; scales and biases [outputs, groups], w = scale * q + bias. mxfp4
//   and mxfp8: 4- and 8-bit floats; scales U8, exponents, for each 32 inputs. nvfp4: 4-bit floats;
//   scales U8, 8-bit floats, for each 16; global_scale, one a matrix, if there, times 1 / 2688.
// - AWQ (AutoAWQ, "gemm"): qweight [inputs, outputs / 8], of 8 outputs in the order 0 2 4 6 1 3 5
// 7;
//   qzeros [groups, outputs / 8] likewise; scales [groups, outputs]. w = scale * (q - zero).
// - GPTQ (AutoGPTQ, GPTQModel): qweight [inputs * bits / 32, outputs]; qzeros [groups, outputs *
//   bits / 32], in version 1 less one in each place, by a subtraction of whole words; scales
//   [groups, outputs]; g_idx [inputs], the group of each input.
// - compressed-tensors' "pack-quantized": weight_packed, words [outputs, inputs * bits / 32], a row
//   being one chain of bits; weight_scale [outputs, groups]; weight_zero_point, words [outputs *
//   bits / 32, groups], a column being one chain, or none where all zeros are the middle,
//   2^(bits - 1); weight_g_idx [inputs].
// - its "int-quantized": weight I8 [outputs, inputs], with a sign; weight_scale for each block of
//   outputs and inputs; weight_zero_point I8 likewise, if there. w = scale * (q - zero).
// - its "mxfp4-pack-quantized" and "nvfp4-pack-quantized": weight_packed U8 [outputs, inputs / 2]
//   of 4-bit floats; weight_scale [outputs, groups], exponents for each 32 inputs or 8-bit floats
//   for each 16; of the latter weight_global_scale [1], which divides the scales. The library gives
//   weights of the latter in bfloat16, and they are rounded so where they are floats.
// - Float8 (its "float-quantized" and "mxfp8-quantized", and checkpoints with a scale for each
//   block): weight [outputs, inputs] of 8-bit floats, 4 bits of exponent and 3 of mantissa; a scale
//   for each block of outputs and inputs, a float or an exponent, w = scale * weight.
// - ModelOpt's NVFP4: weight U8 as weight_packed above, weight_scale likewise, and weight_scale_2
//   [1], which multiplies the scales; its FP8: weight of 8-bit floats, weight_scale [1].
// - bitsandbytes' 4 bits: weight U8 [outputs * inputs / 2, 1], of two weights the first in the high
//   half; weight.absmax, a scale for each 64 weights of a row; weight.quant_map, the 16 values that
//   codes mean; weight.quant_state.bitsandbytes__nf4 or __fp4, JSON in bytes. Scales may be
//   quantized again: absmax U8, nested_quant_map[absmax] * nested_absmax[of 256 each] + an offset
//   in the JSON, whose `dtype` weights are rounded to. Its 8 bits: weight I8 [outputs, inputs], SCB
//   [outputs], w = weight * SCB / 127.
// An exponent e is 2^(e - 127). 4-bit floats have 2 bits of exponent and 1 of mantissa (E2M1).
#ifndef STRATA_COMMON_MODEL_STORED_MATRIX_H_
#define STRATA_COMMON_MODEL_STORED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/model/code_books.h"
#include "common/model/dtype.h"
#include "common/model/quantization_spec.h"

namespace strata {

// One of a matrix's tensors.
struct StoredPart {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<Dtype> dtypes;  // That it may have.
};

// What codes mean.
enum class StoredCodes {
  kUnsigned,
  kSigned,  // Bytes.
  kFloat4,
  kFloat8,
  kTable,  // Of 4 bits, of a table beside them; in pairs, the high half of a byte first.
};

// What workers keep of a matrix, exactly what is stored.
struct KeptForm {
  enum class Kind {
    kFloats,    // float32; or quantized anew, where --quantize says so.
    kIntegers,  // As MLX stores them, with a float32 scale and bias for each `group` inputs.
    kBlocks,    // Of `blocks`.
  } kind = Kind::kFloats;
  uint32_t bits = 0;
  uint32_t group = 0;
  Dtype blocks = Dtype::kMXFP4;
};

struct StoredMatrix {
  StoredScheme scheme;
  // What backends ask for: "model.layers.0.mlp.up_proj.weight".
  std::string name;
  uint64_t matrices = 1;  // One after another; above one each tensor has a dimension more for them.
  uint64_t outputs = 0;   // Of each.
  uint64_t inputs = 0;
  StoredCodes kind = StoredCodes::kUnsigned;
  uint32_t bits = 0;       // Of a code.
  uint64_t group = 0;      // Inputs to a scale.
  uint64_t per_scale = 1;  // Outputs to a scale.
  bool ordered = false;    // Groups are those of the part `order`, and no others.
  bool zeros_less_one = false;
  bool exponents = false;  // Scales of a byte are exponents; else 8-bit floats.
  // By what the tensor's scale is multiplied; 0: it divides.
  float tensor_factor = 1;
  bool as_floats = false;  // Whoever uses it needs floats (StaysAsStored).
  StoredPart codes;
  StoredPart scales;
  // Those without a name are not there.
  StoredPart biases;
  StoredPart zeros;
  StoredPart order;
  StoredPart tensor_scale;
  StoredPart table;
  StoredPart state;  // bitsandbytes' JSON.
  StoredPart nested_scales;
  StoredPart nested_table;

  std::vector<const StoredPart*> Parts() const;
  uint64_t groups() const { return (inputs + group - 1) / group; }
  uint64_t rows() const { return matrices * outputs; }

  KeptForm Kept() const;
  // Of integers, the group; else 0.
  uint32_t KeptGroup() const { return Kept().group; }
  // Bytes of that in panels of 16 outputs, what is float32 being quantized to `quantize` bits if
  // that is 4 or 8.
  uint64_t KeptBytes(uint32_t quantize = 0) const;
};

// For a numerics class: "awq4g128", "gptq8", "gptq4g32-actorder", "packed8", "fp8-128x128",
// "affine3g64", "nvfp4".
std::string StoredFormatName(const StoredScheme& scheme);
// The same where its tensors say more than the scheme does.
std::string StoredFormatName(const StoredMatrix& matrix);

// Whether backends read it as MLX stores it: integers of 4 or 8 bits.
bool IsPlainAffine(const StoredScheme& scheme);

// Of `scheme`, at `path`, `matrices` matrices [outputs, inputs] (0: one, without that dimension);
// `exists`: whether the checkpoint has a tensor. No name of codes where it has none, and the matrix
// is stored as floats.
StoredMatrix StoredMatrixAt(const StoredScheme& scheme, const std::string& path, uint64_t outputs,
                            uint64_t inputs, const std::function<bool(const std::string&)>& exists,
                            uint64_t matrices = 0);

// The path of the matrix whose weights this tensor holds, by its name; "" if it holds none.
std::string_view PathOfWeights(std::string_view tensor);

// A matrix with its bytes, little-endian, unaligned; of the lengths that the shapes say. Const.
class StoredWeights {
 public:
  struct Bytes {
    const uint8_t* data = nullptr;
    Dtype dtype = Dtype::kF32;
    size_t size = 0;
  };
  struct Data {
    Bytes codes, scales, biases, zeros, order, tensor_scale, table, state, nested_scales,
        nested_table;
  };
  // Of a part of `matrix`, the place in `data` that is its.
  static Bytes* PlaceOf(const StoredMatrix& matrix, const StoredPart* part, Data* data);

  // `matrix` outlives it.
  StoredWeights(const StoredMatrix& matrix, const Data& data);

  // INVALID_ARGUMENT (TENSOR_VALUE) where values cannot be: an order that names groups that are not
  // there or is another than the configuration says, codes of more bits than it says, a state that
  // says other sizes.
  absl::Status Check();

  // After Check. For rows [first, end) of all matrices. Of integers, as MLX stores them: words
  // [rows, inputs * bits / 32], scales and biases [rows, inputs / group], by the kept form's bits
  // and group.
  void ReadWords(size_t first, size_t end, uint32_t* words) const;
  void ReadScales(size_t first, size_t end, float* scales, float* biases) const;
  // Weights as float32 [rows, inputs], as the format's own library dequantizes them in float32.
  void ReadFloats(size_t first, size_t end, float* out) const;
  // As blocks of the kept form.
  void ReadBlocks(size_t first, size_t end, uint8_t* out) const;

 private:
  absl::Status CheckOrder() const;
  absl::Status CheckSigned() const;
  absl::Status CheckTable() const;
  absl::Status ReadState();
  // A row's codes, a byte each; of those with a sign, plus the middle.
  void ReadCodes(size_t row, uint8_t* codes) const;
  uint32_t WordCodeAt(size_t output, size_t input) const;
  // In the units of ReadCodes.
  int32_t ZeroAt(size_t row, size_t group) const;
  float ScaleAt(size_t row, size_t group) const;
  float NestedScaleAt(size_t index) const;
  // By what all scales of a row are multiplied, or divided.
  float TensorScaleOf(size_t row) const;
  size_t ScaleIndex(size_t row, size_t group) const;
  size_t GroupOf(size_t input) const;

  const StoredMatrix& matrix_;
  const Data data_;
  const KeptForm kept_;
  // What the format's library gives weights in, having computed them in float32.
  CodeRounding rounding_ = CodeRounding::kNone;
  float values_[256] = {};  // Of codes that are no integers.
  float nested_offset_ = 0;
  uint64_t nested_group_ = 0;
};

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_STORED_MATRIX_H_
