// The scalar kernels for an x86-64 machine with an fma instruction, where std::fma is otherwise a
// call. Elsewhere fma is part of the base instructions, and kernels_scalar.cc is enough.
#include "worker/backend/cpu/kernels.h"

#if defined(__x86_64__)

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "hwy/base.h"
#include "worker/backend/cpu/convert.h"
#include "worker/backend/cpu/tiling.h"

HWY_PUSH_ATTRIBUTES("fma")
namespace strata::cpu {
namespace scalar_fma {
namespace {
constexpr Tiling kTiling = kScalarTiling;
constexpr bool kDotSigned = false;
using DotActivation = int8_t;
#include "worker/backend/cpu/lanes_scalar-inl.h"
// After the lanes, which it is written with.
#include "worker/backend/cpu/kernels-inl.h"
// After the kernels, whose sums it uses.
#include "worker/backend/cpu/attention_spans-inl.h"
#include "worker/backend/cpu/span_softmax-inl.h"
// After what it keeps.
#include "worker/backend/cpu/attention-inl.h"
// After attention, of which it is a kind.
#include "worker/backend/cpu/latent_attention-inl.h"
// In this order.
#include "worker/backend/cpu/int_dot_scalar-inl.h"
#include "worker/backend/cpu/int_line_bytes-inl.h"
#include "worker/backend/cpu/int_line_rows-inl.h"
#include "worker/backend/cpu/peak_loops-inl.h"
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/super-inl.h"
#include "worker/backend/cpu/table-inl.h"
}  // namespace
}  // namespace scalar_fma
}  // namespace strata::cpu
HWY_POP_ATTRIBUTES

namespace strata::cpu {

const Kernels* ScalarFmaKernels() {
  static constexpr Kernels kTable = scalar_fma::MakeTable("scalar");
  return &kTable;
}

}  // namespace strata::cpu

#else

namespace strata::cpu {
const Kernels* ScalarFmaKernels() { return nullptr; }
}  // namespace strata::cpu

#endif
