#include "tests/worker/backend/stand_ins.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "worker/backend/cpu/convert.h"
#include "worker/backend/cpu/tiling.h"

// As the kernel files include them, but for the dot product.

namespace strata::cpu {
namespace stand_in_avx2 {
namespace {
constexpr Tiling kTiling = kAvx2Tiling;
#include "worker/backend/cpu/lanes_scalar-inl.h"
//
#include "worker/backend/cpu/kernels-inl.h"
//
#include "worker/backend/cpu/attention-inl.h"
//
#include "tests/worker/backend/int_dot_words_stand_in-inl.h"
//
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/table-inl.h"
constexpr Kernels kTable = MakeTable("avx2");
}  // namespace
}  // namespace stand_in_avx2
}  // namespace strata::cpu

namespace strata::cpu {
namespace stand_in_avx512 {
namespace {
constexpr Tiling kTiling = kAvx512Tiling;
#include "worker/backend/cpu/lanes_scalar-inl.h"
//
#include "worker/backend/cpu/kernels-inl.h"
//
#include "worker/backend/cpu/attention-inl.h"
//
#include "tests/worker/backend/int_dot_words_stand_in-inl.h"
//
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/table-inl.h"
constexpr Kernels kTable = MakeTable("avx512");
}  // namespace
}  // namespace stand_in_avx512
}  // namespace strata::cpu

namespace strata::cpu {
namespace stand_in_avx512vnni {
namespace {
constexpr Tiling kTiling = kAvx512VnniTiling;
#include "worker/backend/cpu/lanes_scalar-inl.h"
//
#include "worker/backend/cpu/kernels-inl.h"
//
#include "worker/backend/cpu/attention-inl.h"
//
#include "worker/backend/cpu/int_dot_scalar-inl.h"
//
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/table-inl.h"
constexpr Kernels kTable = MakeTable("avx512vnni");
}  // namespace
}  // namespace stand_in_avx512vnni
}  // namespace strata::cpu

namespace strata::cpu {
namespace stand_in_neon {
namespace {
constexpr Tiling kTiling = kNeonTiling;
#include "worker/backend/cpu/lanes_scalar-inl.h"
//
#include "worker/backend/cpu/kernels-inl.h"
//
#include "worker/backend/cpu/attention-inl.h"
//
#include "tests/worker/backend/int_dot_signed_stand_in-inl.h"
//
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/table-inl.h"
constexpr Kernels kTable = MakeTable("neon");
}  // namespace
}  // namespace stand_in_neon
}  // namespace strata::cpu

namespace strata::cpu {

std::vector<const Kernels*> StandIns() {
  return {&stand_in_avx2::kTable, &stand_in_avx512::kTable, &stand_in_avx512vnni::kTable,
          &stand_in_neon::kTable};
}

}  // namespace strata::cpu
