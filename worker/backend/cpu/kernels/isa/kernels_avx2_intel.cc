// The kernels for AVX2, as Intel's processors read memory.
#define STRATA_AVX2_KERNELS Avx2IntelKernels
#define STRATA_AVX2_NAMESPACE avx2_intel
#define STRATA_AVX2_TILING kAvx2IntelTiling
#include "worker/backend/cpu/kernels/isa/kernels_avx2-inl.h"
