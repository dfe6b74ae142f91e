#include "worker/backend/cpu/kernels/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>

#include "hwy/targets.h"
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace strata::cpu {

#if defined(__x86_64__)

namespace {

// AMD's families: 19h is Zen 3 and, with AVX-512, Zen 4; 1Ah is Zen 5.
bool IsFamily(unsigned family) {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) {
    return false;
  }
  return (eax >> 8 & 15) + (eax >> 20 & 255) == family;
}

// Whether the system keeps tiles when it switches threads, and lets this process use them.
bool MayUseTiles() {
#if defined(__linux__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx >> 27 & 1) == 0) {  // OSXSAVE.
    return false;
  }
  asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  constexpr unsigned kTileState = 3 << 17;  // Configuration and data.
  constexpr int64_t kRequestPermission = 0x1023;
  constexpr int64_t kTileData = 18;
  return (eax & kTileState) == kTileState &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

CpuFeatures MachineFeatures() {
  CpuFeatures f;
  const uint32_t targets = static_cast<uint32_t>(hwy::SupportedTargets());
  f.fma = __builtin_cpu_supports("fma");
  f.avx2 = (targets & HWY_AVX2) != 0;
  f.avx512 = (targets & HWY_AVX3) != 0;
  f.avx512vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  f.avxvnni = f.avx2 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
  f.zen4 = f.avx512vnni && __builtin_cpu_is("amd") && IsFamily(0x19);
  f.intel = __builtin_cpu_is("intel");
  if (f.avx512vnni && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    // AMX-TILE and AMX-INT8.
    f.amx = (edx >> 24 & 1) != 0 && (edx >> 25 & 1) != 0 && MayUseTiles();
  }
  return f;
}

#elif defined(__aarch64__)

CpuFeatures MachineFeatures() {
  CpuFeatures f;
  f.neon = true;
#if defined(__linux__)
  f.neondot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__)
  f.neondot = true;  // Every processor that macOS runs on has it.
#endif
  return f;
}

#else

CpuFeatures MachineFeatures() { return {}; }

#endif

}  // namespace strata::cpu
