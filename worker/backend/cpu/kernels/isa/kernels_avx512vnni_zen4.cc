// The kernels for AVX-512 with VNNI, as Zen 4 reads memory.
#define STRATA_VNNI_KERNELS Avx512VnniZen4Kernels
#define STRATA_VNNI_NAMESPACE avx512vnni_zen4
#define STRATA_VNNI_TILING kAvx512VnniZen4Tiling
#include "worker/backend/cpu/kernels/isa/kernels_avx512vnni-inl.h"
