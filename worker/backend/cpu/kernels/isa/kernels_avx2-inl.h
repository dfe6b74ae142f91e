// The kernels for AVX2 with FMA and F16C, once for each kind of processor: a source file names the
// function that gives its table (STRATA_AVX2_KERNELS), a namespace (STRATA_AVX2_NAMESPACE) and its
// tiling (STRATA_AVX2_TILING), and includes this.
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/parts.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>

// Only this target, whatever the compiler's flags allow: cpu/isa.cc chooses at run time.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_BASELINE_TARGETS HWY_AVX2
#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "hwy/highway.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu {
namespace STRATA_AVX2_NAMESPACE {
#include "worker/backend/cpu/kernels/part_functions-inl.h"
// A source file's own. NOLINTNEXTLINE(google-build-namespaces)
namespace {
constexpr Tiling kTiling = STRATA_AVX2_TILING;
#include "worker/backend/cpu/kernels/isa/lanes_hwy-inl.h"
// After the lanes, which they are written with.
#include "worker/backend/cpu/kernels/loops_before_dots-inl.h"
// In this order.
#include "worker/backend/cpu/kernels/isa/int_dot_256_lines-inl.h"
#include "worker/backend/cpu/kernels/isa/int_dot_flips-inl.h"
// Those that differ.
#include "worker/backend/cpu/kernels/isa/int_dot_pairs256-inl.h"
// After the dot products, which they are written with.
#include "worker/backend/cpu/kernels/loops_after_dots-inl.h"
// After the loops, of which it is one.
#include "worker/backend/cpu/kernels/quant_flipped-inl.h"
}  // namespace
#include "worker/backend/cpu/kernels/parts-inl.h"
}  // namespace STRATA_AVX2_NAMESPACE
}  // namespace strata::cpu
HWY_AFTER_NAMESPACE();

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {

const Kernels* STRATA_AVX2_KERNELS() {
  static constexpr Kernels kTable = STRATA_AVX2_NAMESPACE::MakeTable("avx2");
  return &kTable;
}

}  // namespace strata::cpu
#endif

#else

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {
const Kernels* STRATA_AVX2_KERNELS() { return nullptr; }
}  // namespace strata::cpu
#endif

#endif
