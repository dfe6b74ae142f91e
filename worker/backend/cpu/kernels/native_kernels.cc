// Prints the source files, without their endings, of the kernels that this machine can run, the one
// that a worker would choose of all last. cmake/StrataKernels.cmake compiles and runs it.
#include <cstdio>

// A program of one source, so that CMake can run it before there is a library.
#include "worker/backend/cpu/kernels/cpu_features.cc"  // NOLINT(bugprone-suspicious-include)
#include "worker/backend/cpu/kernels/isa.cc"           // NOLINT(bugprone-suspicious-include)

namespace strata::cpu {
namespace {

template <int>
const Kernels* Named(const char* file) {
  static Kernels table{};
  table.isa = file;
  return &table;
}

}  // namespace

// Elsewhere they are tables of kernels; here each has but a name.
#define STRATA_NAMED(FUNCTION, FILE) \
  const Kernels* FUNCTION() { return Named<__LINE__>(FILE); }
STRATA_NAMED(ScalarKernels, "kernels_scalar")
STRATA_NAMED(ScalarFmaKernels, "kernels_scalar_fma")
STRATA_NAMED(Avx2Kernels, "kernels_avx2")
STRATA_NAMED(Avx2IntelKernels, "kernels_avx2_intel")
STRATA_NAMED(AvxVnniKernels, "kernels_avxvnni")
STRATA_NAMED(Avx512Kernels, "kernels_avx512")
STRATA_NAMED(Avx512VnniKernels, "kernels_avx512vnni")
STRATA_NAMED(Avx512VnniZen4Kernels, "kernels_avx512vnni_zen4")
STRATA_NAMED(Avx512VnniIntelKernels, "kernels_avx512vnni_intel")
STRATA_NAMED(AmxKernels, "kernels_amx")
STRATA_NAMED(NeonKernels, "kernels_neon")
STRATA_NAMED(NeonDotKernels, "kernels_neondot")
#undef STRATA_NAMED

}  // namespace strata::cpu

int main() {
  for (const strata::cpu::Kernels* table : strata::cpu::MachineKernels()) {
    std::puts(table->isa);
  }
}
