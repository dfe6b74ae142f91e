// The kernels for AMX (int8 tiles) beside AVX-512 with VNNI: tiles take the products of many rows
// of int8 activations, and all else is as without them.
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
#include <type_traits>

// Only this target, whatever the compiler's flags allow: cpu/isa.cc chooses at run time.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_BASELINE_TARGETS HWY_AVX3
#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "hwy/highway.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/tiling.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni,amx-tile,amx-int8");
namespace strata::cpu {
namespace amx {
#include "worker/backend/cpu/kernels/part_functions-inl.h"
namespace {
constexpr Tiling kTiling = kAmxTiling;
#include "worker/backend/cpu/kernels/isa/lanes_hwy-inl.h"
// After the lanes, which they are written with.
#include "worker/backend/cpu/kernels/loops_before_dots-inl.h"
// In this order.
#include "worker/backend/cpu/kernels/isa/int_dot_vnni-inl.h"
#include "worker/backend/cpu/kernels/isa/int_line_bytes-inl.h"
#include "worker/backend/cpu/kernels/isa/int_tile_amx-inl.h"
// After the dot products, which they are written with.
#include "worker/backend/cpu/kernels/loops_after_dots-inl.h"
// After the loops, whose place tiles take, and in this order.
#include "worker/backend/cpu/kernels/quant_tiles-inl.h"
#include "worker/backend/cpu/kernels/tile_table-inl.h"
}  // namespace
#include "worker/backend/cpu/kernels/parts-inl.h"
}  // namespace amx
}  // namespace strata::cpu
HWY_AFTER_NAMESPACE();

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {

const Kernels* AmxKernels() {
  static constexpr Kernels kTable = amx::MakeTileTable("amx");
  return &kTable;
}

}  // namespace strata::cpu
#endif

#else

#if STRATA_HAS_PART(STRATA_PART_TABLE)
namespace strata::cpu {
const Kernels* AmxKernels() { return nullptr; }
}  // namespace strata::cpu
#endif

#endif
