#include "tests/worker/backend/stand_ins.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/check.h"
#include "common/numerics/exp_constants.h"
#include "tests/worker/backend/tiles.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/parts.h"
#include "worker/backend/cpu/kernels/tiling.h"

namespace strata::cpu {

namespace stand_in_avx2 {
namespace {
constexpr Tiling kTiling = kAvx2Tiling;
constexpr DotOperands kDotOperands = DotOperands::kFlipped;
#include "tests/worker/backend/stand_in-inl.h"
// After the loops, of which it is one.
#include "worker/backend/cpu/kernels/quant_flipped-inl.h"
constexpr Kernels kTable = MakeTable("avx2");
}  // namespace
}  // namespace stand_in_avx2

namespace stand_in_avx2_intel {
namespace {
constexpr Tiling kTiling = kAvx2IntelTiling;
constexpr DotOperands kDotOperands = DotOperands::kFlipped;
#include "tests/worker/backend/stand_in-inl.h"
constexpr Kernels kTable = MakeTable("avx2");
}  // namespace
}  // namespace stand_in_avx2_intel

namespace stand_in_avxvnni {
namespace {
constexpr Tiling kTiling = kAvxVnniTiling;
constexpr DotOperands kDotOperands = DotOperands::kUnsigned;
#include "tests/worker/backend/stand_in-inl.h"
constexpr Kernels kTable = MakeTable("avxvnni");
}  // namespace
}  // namespace stand_in_avxvnni

namespace stand_in_avx512 {
namespace {
constexpr Tiling kTiling = kAvx512Tiling;
constexpr DotOperands kDotOperands = DotOperands::kFlipped;
#include "tests/worker/backend/stand_in-inl.h"
constexpr Kernels kTable = MakeTable("avx512");
}  // namespace
}  // namespace stand_in_avx512

namespace stand_in_avx512vnni {
namespace {
constexpr Tiling kTiling = kAvx512VnniTiling;
constexpr DotOperands kDotOperands = DotOperands::kUnsigned;
#include "tests/worker/backend/stand_in-inl.h"
constexpr Kernels kTable = MakeTable("avx512vnni");
}  // namespace
}  // namespace stand_in_avx512vnni

namespace stand_in_avx512vnni_zen4 {
namespace {
constexpr Tiling kTiling = kAvx512VnniZen4Tiling;
constexpr DotOperands kDotOperands = DotOperands::kUnsigned;
#include "tests/worker/backend/stand_in-inl.h"
constexpr Kernels kTable = MakeTable("avx512vnni");
}  // namespace
}  // namespace stand_in_avx512vnni_zen4

namespace stand_in_avx512vnni_intel {
namespace {
constexpr Tiling kTiling = kAvx512VnniIntelTiling;
constexpr DotOperands kDotOperands = DotOperands::kUnsigned;
#include "tests/worker/backend/stand_in-inl.h"
constexpr Kernels kTable = MakeTable("avx512vnni");
}  // namespace
}  // namespace stand_in_avx512vnni_intel

namespace stand_in_amx {
namespace {
constexpr Tiling kTiling = kAmxTiling;
constexpr DotOperands kDotOperands = DotOperands::kUnsigned;
#include "tests/worker/backend/stand_in-inl.h"
// After the table, which the last of them changes.
#include "tests/worker/backend/int_tile_scalar-inl.h"
#include "worker/backend/cpu/kernels/quant_tiles-inl.h"
#include "worker/backend/cpu/kernels/tile_table-inl.h"
constexpr Kernels kTable = MakeTileTable("amx");
}  // namespace
}  // namespace stand_in_amx

namespace stand_in_neon {
namespace {
constexpr Tiling kTiling = kNeonTiling;
constexpr DotOperands kDotOperands = DotOperands::kSigned;
#include "tests/worker/backend/stand_in-inl.h"
constexpr Kernels kTable = MakeTable("neon");
}  // namespace
}  // namespace stand_in_neon

std::vector<std::pair<std::string, const Kernels*>> StandIns() {
  return {{"avx2", &stand_in_avx2::kTable},
          {"avx2_intel", &stand_in_avx2_intel::kTable},
          {"avxvnni", &stand_in_avxvnni::kTable},
          {"avx512", &stand_in_avx512::kTable},
          {"avx512vnni", &stand_in_avx512vnni::kTable},
          {"avx512vnni_zen4", &stand_in_avx512vnni_zen4::kTable},
          {"avx512vnni_intel", &stand_in_avx512vnni_intel::kTable},
          {"amx", &stand_in_amx::kTable},
          {"neon", &stand_in_neon::kTable}};
}

}  // namespace strata::cpu
