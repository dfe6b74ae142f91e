// The kernels for AVX-512 with VNNI.
#include "worker/backend/cpu/kernels.h"

#if defined(__x86_64__)

#define STRATA_VNNI_NAMESPACE avx512vnni
#define STRATA_VNNI_TILING kAvx512VnniTiling
#include "worker/backend/cpu/kernels_avx512vnni-inl.h"

namespace strata::cpu {

const Kernels* Avx512VnniKernels() {
  static constexpr Kernels kTable = avx512vnni::MakeTable("avx512vnni");
  return &kTable;
}

}  // namespace strata::cpu

#else

namespace strata::cpu {
const Kernels* Avx512VnniKernels() { return nullptr; }
}  // namespace strata::cpu

#endif
