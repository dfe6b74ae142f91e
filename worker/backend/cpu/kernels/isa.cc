#include "worker/backend/cpu/kernels/isa.h"

namespace strata::cpu {
namespace {

const CpuFeatures& Machine() {
  static const CpuFeatures features = MachineFeatures();
  return features;
}

}  // namespace

std::vector<std::string> IsasOf(const CpuFeatures& f) {
  std::vector<std::string> names = {"scalar"};
  const auto add = [&names](bool has, const char* name) {
    if (has) {
      names.emplace_back(name);
    }
  };
  add(f.avx2, "avx2");
  add(f.avxvnni, "avxvnni");
  add(f.avx512, "avx512");
  add(f.avx512vnni, "avx512vnni");
  add(f.amx, "amx");
  add(f.neon, "neon");
  add(f.neondot, "neondot");
  return names;
}

std::vector<const Kernels*> KernelsOf(const CpuFeatures& f) {
  std::vector<const Kernels*> tables = {ScalarKernels()};
  const auto add = [&tables](bool has, const Kernels* kernels) {
    if (has && kernels != nullptr) {
      tables.push_back(kernels);
    }
  };
  add(f.fma, ScalarFmaKernels());
  add(f.avx2, Avx2Kernels());
  add(f.avx2 && f.intel, Avx2IntelKernels());
  add(f.avxvnni, AvxVnniKernels());
  add(f.avx512, Avx512Kernels());
  add(f.avx512vnni, Avx512VnniKernels());
  add(f.avx512vnni && f.zen4, Avx512VnniZen4Kernels());
  add(f.avx512vnni && f.intel, Avx512VnniIntelKernels());
  add(f.amx, AmxKernels());
  add(f.neon, NeonKernels());
  add(f.neondot, NeonDotKernels());
  return tables;
}

std::vector<std::string> MachineIsas() { return IsasOf(Machine()); }
std::vector<const Kernels*> MachineKernels() { return KernelsOf(Machine()); }

}  // namespace strata::cpu
