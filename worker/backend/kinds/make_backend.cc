#include "worker/backend/kinds/make_backend.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/backend/optional_backends.h"

namespace strata {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const KindOptions& options) {
  if (name == "cpu") {
    return MakeCpuBackend(options.cpu, options.any);
  }
  if (name == "cuda") {
    return MakeCudaBackend(options.any);
  }
  if (name == "mlx") {
    return MakeMlxBackend(options.any);
  }
  if (name == "auto" || name.empty()) {
    // The fastest that this build and machine have. Only absence goes on to the next.
    using Maker = absl::StatusOr<std::unique_ptr<Backend>> (*)(const BackendOptions&);
    for (const Maker make : {Maker{MakeCudaBackend}, Maker{MakeMlxBackend}}) {
      if (make == MakeMlxBackend && !MlxHasGpu()) {
        continue;
      }
      auto backend = make(options.any);
      if (backend.ok() || !absl::IsUnimplemented(backend.status())) {
        return backend;
      }
      if (ReasonOf(backend.status()) == kDeviceAbsent && options.any.warning_log) {
        options.any.warning_log(
            absl::StrCat("the CPU computes: ", backend.status().message(), " (--backend auto)"));
      }
    }
    return MakeCpuBackend(options.cpu, options.any);
  }
  return Error(absl::StatusCode::kInvalidArgument, "BACKEND_UNKNOWN",
               absl::StrCat("there is no backend \"", std::string(name), "\""))
      .Hint("use --backend auto, cpu, cuda or mlx");
}

}  // namespace strata
