// The kernels for AVX-512 with VNNI.
#define STRATA_VNNI_KERNELS Avx512VnniKernels
#define STRATA_VNNI_NAMESPACE avx512vnni
#define STRATA_VNNI_TILING kAvx512VnniTiling
#include "worker/backend/cpu/kernels/isa/kernels_avx512vnni-inl.h"
