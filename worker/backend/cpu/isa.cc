#include "worker/backend/cpu/isa.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "hwy/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace strata::cpu {
namespace {

struct Features {
  bool fma = false;
  bool avx2 = false;
  bool avx512 = false;
  bool avx512vnni = false;
  bool amx = false;
  bool neon = false;
  bool neondot = false;
};

Features Detect() {
  Features f;
#if defined(__x86_64__)
  const uint32_t targets = static_cast<uint32_t>(hwy::SupportedTargets());
  f.fma = __builtin_cpu_supports("fma");
  f.avx2 = (targets & HWY_AVX2) != 0;
  f.avx512 = (targets & HWY_AVX3) != 0;
  f.avx512vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (f.avx512 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    f.amx = (edx >> 24 & 1) != 0 && (edx >> 25 & 1) != 0;  // AMX-TILE and AMX-INT8.
  }
#elif defined(__aarch64__)
  f.neon = true;
#if defined(__ARM_FEATURE_DOTPROD)
  f.neondot = true;
#endif
#endif
  return f;
}

const Features& Machine() {
  static const Features features = Detect();
  return features;
}

}  // namespace

std::vector<std::string> MachineIsas() {
  const Features& f = Machine();
  std::vector<std::string> names = {"scalar"};
  const auto add = [&names](bool has, const char* name) {
    if (has) {
      names.emplace_back(name);
    }
  };
  add(f.avx2, "avx2");
  add(f.avx512, "avx512");
  add(f.avx512vnni, "avx512vnni");
  add(f.amx, "amx");
  add(f.neon, "neon");
  add(f.neondot, "neondot");
  return names;
}

std::vector<const Kernels*> MachineKernels() {
  const Features& f = Machine();
  std::vector<const Kernels*> tables = {ScalarKernels()};
  const auto add = [&tables](bool has, const Kernels* kernels) {
    if (has && kernels != nullptr) {
      tables.push_back(kernels);
    }
  };
  add(f.fma, ScalarFmaKernels());
  add(f.avx2, Avx2Kernels());
  add(f.avx512, Avx512Kernels());
  add(f.avx512vnni, Avx512VnniKernels());
  return tables;
}

absl::StatusOr<const Kernels*> ChooseKernels(std::string_view isa) {
  const std::vector<const Kernels*> tables = MachineKernels();
  if (isa.empty()) {
    return tables.back();
  }
  const std::vector<std::string> names = MachineIsas();
  if (std::find(names.begin(), names.end(), isa) == names.end()) {
    return Error(absl::StatusCode::kInvalidArgument, "ISA_ABSENT",
                 absl::StrCat("this machine cannot run the instruction set \"", std::string(isa),
                              "\"; it has ", absl::StrJoin(names, ", ")))
        .Hint("set STRATA_CPU_ISA to one of those, or unset it");
  }
  const Kernels* best = nullptr;
  for (const Kernels* table : tables) {
    if (table->isa == isa) {
      best = table;  // The last: scalar has two.
    }
  }
  return best != nullptr ? best : tables.back();
}

}  // namespace strata::cpu
