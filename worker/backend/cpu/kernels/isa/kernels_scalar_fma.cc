// The scalar kernels for an x86-64 machine with an fma instruction, where std::fma is otherwise a
// call. Elsewhere fma is part of the base instructions, and kernels_scalar.cc is enough.
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/parts.h"

#if defined(__x86_64__)

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "hwy/base.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/tiling.h"

HWY_PUSH_ATTRIBUTES("fma")
namespace strata::cpu {
namespace scalar_fma {
#include "worker/backend/cpu/kernels/part_functions-inl.h"
namespace {
constexpr Tiling kTiling = kScalarTiling;
constexpr DotOperands kDotOperands = DotOperands::kUnsigned;
#include "worker/backend/cpu/kernels/isa/lanes_scalar-inl.h"
// After the lanes, which they are written with.
#include "worker/backend/cpu/kernels/loops_before_dots-inl.h"
// In this order.
#include "worker/backend/cpu/kernels/isa/int_dot_scalar-inl.h"
#include "worker/backend/cpu/kernels/isa/int_line_bytes-inl.h"
// After the dot products, which they are written with.
#include "worker/backend/cpu/kernels/loops_after_dots-inl.h"
}  // namespace
#include "worker/backend/cpu/kernels/parts-inl.h"
}  // namespace scalar_fma
}  // namespace strata::cpu
HWY_POP_ATTRIBUTES

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {

const Kernels* ScalarFmaKernels() {
  static constexpr Kernels kTable = scalar_fma::MakeTable("scalar");
  return &kTable;
}

}  // namespace strata::cpu
#endif

#else

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {
const Kernels* ScalarFmaKernels() { return nullptr; }
}  // namespace strata::cpu
#endif

#endif
