// The kernels for AVX2 with FMA, F16C and VNNI in vectors of 256 bits (AVX-VNNI), which Intel's
// processors since Alder Lake have that have no AVX-512.
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

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avxvnni");
namespace strata::cpu {
namespace avxvnni {
#include "worker/backend/cpu/kernels/part_functions-inl.h"
namespace {
constexpr Tiling kTiling = kAvxVnniTiling;
#include "worker/backend/cpu/kernels/isa/lanes_hwy-inl.h"
// After the lanes, which they are written with.
#include "worker/backend/cpu/kernels/loops_before_dots-inl.h"
// In this order.
#include "worker/backend/cpu/kernels/isa/int_dot_256_lines-inl.h"
// The one that differs.
#include "worker/backend/cpu/kernels/isa/int_dot_avxvnni-inl.h"
#include "worker/backend/cpu/kernels/isa/int_line_bytes-inl.h"
// After the dot products, which they are written with.
#include "worker/backend/cpu/kernels/loops_after_dots-inl.h"
}  // namespace
#include "worker/backend/cpu/kernels/parts-inl.h"
}  // namespace avxvnni
}  // namespace strata::cpu
HWY_AFTER_NAMESPACE();

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {

const Kernels* AvxVnniKernels() {
  static constexpr Kernels kTable = avxvnni::MakeTable("avxvnni");
  return &kTable;
}

}  // namespace strata::cpu
#endif

#else

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {
const Kernels* AvxVnniKernels() { return nullptr; }
}  // namespace strata::cpu
#endif

#endif
