// The kernels for AVX-512 with VNNI, as Zen 4 reads memory.
#include "worker/backend/cpu/kernels.h"

#if defined(__x86_64__)

#define STRATA_VNNI_NAMESPACE avx512vnni_zen4
#define STRATA_VNNI_TILING kAvx512VnniZen4Tiling
#include "worker/backend/cpu/kernels_avx512vnni-inl.h"

namespace strata::cpu {

const Kernels* Avx512VnniZen4Kernels() {
  static constexpr Kernels kTable = avx512vnni_zen4::MakeTable("avx512vnni");
  return &kTable;
}

}  // namespace strata::cpu

#else

namespace strata::cpu {
const Kernels* Avx512VnniZen4Kernels() { return nullptr; }
}  // namespace strata::cpu

#endif
