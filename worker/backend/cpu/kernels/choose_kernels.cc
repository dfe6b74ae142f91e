#include "worker/backend/cpu/kernels/choose_kernels.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::cpu {

absl::StatusOr<const Kernels*> ChooseKernels(std::string_view isa, const CpuFeatures& machine) {
  const std::vector<const Kernels*> tables = KernelsOf(machine);
  if (isa.empty()) {
    return tables.back();
  }
  const std::vector<std::string> names = IsasOf(machine);
  if (std::find(names.begin(), names.end(), isa) == names.end()) {
    return Error(absl::StatusCode::kInvalidArgument, "ISA_ABSENT",
                 absl::StrCat("this machine cannot run the instruction set \"", std::string(isa),
                              "\"; it has ", absl::StrJoin(names, ", ")))
        .Hint("set STRATA_CPU_ISA to one of those, or unset it");
  }
  const Kernels* best = nullptr;
  for (const Kernels* table : tables) {
    if (table->isa == isa) {
      best = table;  // The last: some have several.
    }
  }
  return best != nullptr ? best : tables.back();
}

}  // namespace strata::cpu
