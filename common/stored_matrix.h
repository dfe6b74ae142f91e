// Matrices as other tools than MLX quantize them, each in several tensors of a checkpoint. The
// formats, in 32-bit words whose lowest bits come first:
// - AWQ (AutoAWQ, "gemm"): qweight [inputs, outputs / 8], of 8 outputs in the order 0 2 4 6 1 3 5
// 7;
//   qzeros [groups, outputs / 8] likewise; scales [groups, outputs]. w = scale * (q - zero).
// - GPTQ (AutoGPTQ, GPTQModel): qweight [inputs * bits / 32, outputs]; qzeros [groups, outputs *
//   bits / 32], in version 1 less one in each place, by a subtraction of whole words; scales
//   [groups, outputs]; g_idx [inputs], the group of each input.
// - Packed (compressed-tensors, "pack-quantized"): weight_packed [outputs, inputs * bits / 32];
//   weight_scale [outputs, groups]; weight_zero_point [outputs * bits / 32, groups], or none where
//   all zeros are the middle, 2^(bits - 1); weight_g_idx [inputs].
// - Float8 (compressed-tensors' "float-quantized", and checkpoints with a scale for each block):
//   weight [outputs, inputs] of 8-bit floats, 4 bits of exponent and 3 of mantissa; a scale for
//   each block of outputs and inputs, w = scale * weight.
#ifndef STRATA_COMMON_STORED_MATRIX_H_
#define STRATA_COMMON_STORED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/dtype.h"
#include "common/quantization_spec.h"

namespace strata {

// One of a matrix's tensors.
struct StoredPart {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<Dtype> dtypes;  // That it may have.
};

struct StoredMatrix {
  QuantizationMethod method = QuantizationMethod::kAwq;
  uint64_t outputs = 0;
  uint64_t inputs = 0;
  uint32_t bits = 0;       // Of an integer.
  uint64_t group = 0;      // Inputs to a scale.
  uint64_t per_scale = 1;  // Outputs to a scale.
  bool ordered = false;    // Groups are those of the part `order`, and no others.
  bool zeros_less_one = false;
  bool as_floats = false;  // Whoever uses it needs floats (StaysAsStored).
  StoredPart codes;
  StoredPart scales;
  StoredPart zeros;  // No name: it has none.
  StoredPart order;  // Likewise.

  std::vector<const StoredPart*> Parts() const;
  uint64_t groups() const { return (inputs + group - 1) / group; }

  // What workers keep: integers with a float32 scale and bias for each KeptGroup() inputs, which is
  // exactly what is stored; or float32, where KeptGroup() is 0, since no such form has it, or
  // as_floats asks for it.
  uint32_t KeptGroup() const;
  // Bytes of that in panels of 16 outputs, what is float32 being quantized to `quantize` bits if
  // that is 4 or 8.
  uint64_t KeptBytes(uint32_t quantize = 0) const;
};

// Whether workers keep its matrices as integers.
inline bool StoresIntegers(const QuantizationSpec& spec) {
  return spec.method != QuantizationMethod::kFloat8 && !spec.has_order;
}
// For a numerics class: "awq4g128", "gptq8", "gptq4g32-actorder", "packed8", "fp8-128x128".
std::string StoredFormatName(const QuantizationSpec& spec);

// Of `spec`, which is not kMlx, at `path`, a matrix [outputs, inputs]; `exists`: whether the
// checkpoint has a tensor. No name of codes where it has none, and the matrix is stored as floats.
StoredMatrix StoredMatrixAt(const QuantizationSpec& spec, const std::string& path, uint64_t outputs,
                            uint64_t inputs, const std::function<bool(const std::string&)>& exists);

// The path of the matrix whose weights this tensor holds, by its name; "" if it holds none.
std::string_view PathOfWeights(std::string_view tensor);

// A matrix with its bytes, little-endian, unaligned; of the lengths that the shapes say. Const.
class StoredWeights {
 public:
  struct Data {
    const uint8_t* codes = nullptr;
    const uint8_t* scales = nullptr;
    Dtype scale_dtype = Dtype::kF32;
    const uint8_t* zeros = nullptr;
    const uint8_t* order = nullptr;
  };
  // `matrix` outlives it.
  StoredWeights(const StoredMatrix& matrix, const Data& data);

  // INVALID_ARGUMENT where the order names groups that are not there, or is another than the
  // configuration says.
  absl::Status CheckOrder() const;

  // Of integers (KeptGroup() != 0), for outputs [first, end), as MLX stores them: words [outputs,
  // inputs * bits / 32], scales and biases [outputs, inputs / KeptGroup()].
  void ReadWords(size_t first, size_t end, uint32_t* words) const;
  void ReadScales(size_t first, size_t end, float* scales, float* biases) const;
  // Weights of outputs [first, end) as float32 [outputs, inputs], as the format's own library
  // dequantizes them in float32.
  void ReadFloats(size_t first, size_t end, float* out) const;

 private:
  uint32_t CodeAt(size_t output, size_t input) const;
  uint32_t ZeroAt(size_t output, size_t group) const;
  float ScaleAt(size_t output, size_t group) const;
  size_t GroupOf(size_t input) const;

  const StoredMatrix& matrix_;
  const Data data_;
};

// A float of 8 bits, 4 of exponent and 3 of mantissa, without infinities.
float Float8ToF32(uint8_t bits);

}  // namespace strata

#endif  // STRATA_COMMON_STORED_MATRIX_H_
