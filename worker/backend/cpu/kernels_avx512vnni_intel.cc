// The kernels for AVX-512 with VNNI, as Intel's processors without tiles read memory.
#include "worker/backend/cpu/kernels.h"

#if defined(__x86_64__)

#define STRATA_VNNI_NAMESPACE avx512vnni_intel
#define STRATA_VNNI_TILING kAvx512VnniIntelTiling
#include "worker/backend/cpu/kernels_avx512vnni-inl.h"

namespace strata::cpu {

const Kernels* Avx512VnniIntelKernels() {
  static constexpr Kernels kTable = avx512vnni_intel::MakeTable("avx512vnni");
  return &kTable;
}

}  // namespace strata::cpu

#else

namespace strata::cpu {
const Kernels* Avx512VnniIntelKernels() { return nullptr; }
}  // namespace strata::cpu

#endif
