// The kernels for AVX2.
#define STRATA_AVX2_KERNELS Avx2Kernels
#define STRATA_AVX2_NAMESPACE avx2
#define STRATA_AVX2_TILING kAvx2Tiling
#include "worker/backend/cpu/kernels/isa/kernels_avx2-inl.h"
