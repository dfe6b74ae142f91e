// The kernels for AVX-512 with VNNI, as Intel's processors without tiles read memory.
#define STRATA_VNNI_KERNELS Avx512VnniIntelKernels
#define STRATA_VNNI_NAMESPACE avx512vnni_intel
#define STRATA_VNNI_TILING kAvx512VnniIntelTiling
#include "worker/backend/cpu/kernels/isa/kernels_avx512vnni-inl.h"
