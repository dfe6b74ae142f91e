// Types of stored numbers.
#ifndef STRATA_COMMON_MODEL_DTYPE_H_
#define STRATA_COMMON_MODEL_DTYPE_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace strata {

// Those from kQ4_0 on are formats of blocks, see common/model/block_formats.h.
enum class Dtype {
  kF32,
  kF16,
  kBF16,
  kU8,
  kI8,
  kU32,
  kI32,
  kI64,
  kF64,
  kF8E4M3,
  kF8E8M0,  // Exponents.
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kBool,
  kU16,
  kI16,
  kU64,
  kC64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kMXFP4,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kNVFP4,
  kNF4,
  kFP4,
  kNVFP4BF16
};
// Of one element; 0 for a format of blocks.
size_t DtypeBits(Dtype dtype);
// Likewise; 0 where it is no whole number either.
size_t DtypeBytes(Dtype dtype);
// safetensors' name, "BF16"; ggml's for blocks, "Q4_0".
const char* DtypeName(Dtype dtype);
// The dtype of that name.
std::optional<Dtype> DtypeOfName(std::string_view name);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_DTYPE_H_
