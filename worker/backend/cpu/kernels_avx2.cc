// The kernels for AVX2 with FMA and F16C.
#include "worker/backend/cpu/kernels.h"

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
#include "worker/backend/cpu/convert.h"
#include "worker/backend/cpu/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu {
namespace avx2 {
namespace {
constexpr Tiling kTiling = kAvx2Tiling;
#include "worker/backend/cpu/lanes_hwy-inl.h"
// After the lanes, which it is written with.
#include "worker/backend/cpu/kernels-inl.h"
// After the kernels, whose sums it uses.
#include "worker/backend/cpu/attention_spans-inl.h"
// After what it keeps.
#include "worker/backend/cpu/attention-inl.h"
// After attention, of which it is a kind.
#include "worker/backend/cpu/latent_attention-inl.h"
// In this order.
#include "worker/backend/cpu/int_dot_256_lines-inl.h"
// The one that differs.
#include "worker/backend/cpu/int_dot_words256-inl.h"
#include "worker/backend/cpu/peak_loops-inl.h"
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/super-inl.h"
#include "worker/backend/cpu/table-inl.h"
}  // namespace
}  // namespace avx2
}  // namespace strata::cpu
HWY_AFTER_NAMESPACE();

namespace strata::cpu {

const Kernels* Avx2Kernels() {
  static constexpr Kernels kTable = avx2::MakeTable("avx2");
  return &kTable;
}

}  // namespace strata::cpu

#else

namespace strata::cpu {
const Kernels* Avx2Kernels() { return nullptr; }
}  // namespace strata::cpu

#endif
