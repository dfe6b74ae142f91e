// The kernels for AVX-512 (F, VL, DQ, BW) with VNNI, once for each kind of processor: a source file
// names the function that gives its table (STRATA_VNNI_KERNELS), a namespace
// (STRATA_VNNI_NAMESPACE) and its tiling (STRATA_VNNI_TILING), and includes this.
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/parts.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of the undefined operands inside its own intrinsics (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>

// Only this target, whatever the compiler's flags allow: cpu/isa.cc chooses at run time.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_BASELINE_TARGETS HWY_AVX3
#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "hwy/highway.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/tiling.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni");
namespace strata::cpu {
namespace STRATA_VNNI_NAMESPACE {
#include "worker/backend/cpu/kernels/part_functions-inl.h"
// A source file's own. NOLINTNEXTLINE(google-build-namespaces)
namespace {
constexpr Tiling kTiling = STRATA_VNNI_TILING;
#include "worker/backend/cpu/kernels/isa/lanes_hwy-inl.h"
// After the lanes, which they are written with.
#include "worker/backend/cpu/kernels/loops_before_dots-inl.h"
// In this order.
#include "worker/backend/cpu/kernels/isa/int_dot_vnni-inl.h"
#include "worker/backend/cpu/kernels/isa/int_line_bytes-inl.h"
// After the dot products, which they are written with.
#include "worker/backend/cpu/kernels/loops_after_dots-inl.h"
}  // namespace
#include "worker/backend/cpu/kernels/parts-inl.h"
}  // namespace STRATA_VNNI_NAMESPACE
}  // namespace strata::cpu
HWY_AFTER_NAMESPACE();

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {

const Kernels* STRATA_VNNI_KERNELS() {
  static constexpr Kernels kTable = STRATA_VNNI_NAMESPACE::MakeTable("avx512vnni");
  return &kTable;
}

}  // namespace strata::cpu
#endif

#else

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {
const Kernels* STRATA_VNNI_KERNELS() { return nullptr; }
}  // namespace strata::cpu
#endif

#endif
