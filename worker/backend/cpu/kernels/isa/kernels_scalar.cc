// The kernels without vector instructions, for any machine.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/parts.h"
#include "worker/backend/cpu/kernels/tiling.h"

namespace strata::cpu {
namespace scalar {
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
}  // namespace scalar
}  // namespace strata::cpu

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {

const Kernels* ScalarKernels() {
  static constexpr Kernels kTable = scalar::MakeTable("scalar");
  return &kTable;
}

}  // namespace strata::cpu
#endif
