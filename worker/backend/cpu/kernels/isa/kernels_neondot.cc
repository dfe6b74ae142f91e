// The kernels for NEON with the dot product extension.
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/parts.h"

// Clang's intrinsics need its flags to allow the extension, as Apple's do.
#if defined(__aarch64__) && (defined(__ARM_FEATURE_DOTPROD) || !defined(__clang__))

#include <arm_neon.h>

#include <cmath>
#include <cstring>
#include <limits>

// Only this target, whatever the compiler's flags allow: cpu/isa.cc chooses at run time.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_BASELINE_TARGETS HWY_NEON
// Or Highway would ask for the AES extension too, which not every processor has.
#define TOOLCHAIN_MISS_SYS_AUXV_H
#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "hwy/highway.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/tiling.h"

#if !defined(__ARM_FEATURE_DOTPROD)
#define STRATA_PUSHED_DOTPROD
HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
#endif
namespace strata::cpu {
namespace neondot {
#include "worker/backend/cpu/kernels/part_functions-inl.h"
namespace {
constexpr Tiling kTiling = kNeonTiling;
#include "worker/backend/cpu/kernels/isa/lanes_hwy-inl.h"
// After the lanes, which they are written with.
#include "worker/backend/cpu/kernels/loops_before_dots-inl.h"
// In this order.
#include "worker/backend/cpu/kernels/isa/int_dot_neon_lines-inl.h"
// The one that differs.
#include "worker/backend/cpu/kernels/isa/int_dot_neondot-inl.h"
#include "worker/backend/cpu/kernels/isa/int_line_bytes-inl.h"
// After the dot products, which they are written with.
#include "worker/backend/cpu/kernels/loops_after_dots-inl.h"
}  // namespace
#include "worker/backend/cpu/kernels/parts-inl.h"
}  // namespace neondot
}  // namespace strata::cpu
#if defined(STRATA_PUSHED_DOTPROD)
HWY_POP_ATTRIBUTES
#endif

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {

const Kernels* NeonDotKernels() {
  static constexpr Kernels kTable = neondot::MakeTable("neondot");
  return &kTable;
}

}  // namespace strata::cpu
#endif

#else

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {
const Kernels* NeonDotKernels() { return nullptr; }
}  // namespace strata::cpu
#endif

#endif
