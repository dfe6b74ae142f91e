// What the processor has, as far as kernels ask.
#ifndef STRATA_WORKER_BACKEND_CPU_KERNELS_CPU_FEATURES_H_
#define STRATA_WORKER_BACKEND_CPU_KERNELS_CPU_FEATURES_H_

namespace strata::cpu {

struct CpuFeatures {
  bool fma = false;
  bool avx2 = false;
  bool avxvnni = false;  // In vectors of 256 bits, without AVX-512.
  bool avx512 = false;   // F, VL, DQ, BW.
  bool avx512vnni = false;
  // Who made it, by which kernels read memory; what it has is said above.
  bool zen4 = false;
  bool intel = false;
  bool amx = false;  // Tiles and their int8 product, beside avx512vnni.
  bool neon = false;
  bool neondot = false;
};

// Of this machine, and what its system lets programs use. Asks Linux for the use of tiles, once and
// for all threads of the process, where the processor has them.
CpuFeatures MachineFeatures();

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_KERNELS_CPU_FEATURES_H_
