#include "worker/backend/kinds/make_backend.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/backend/optional_backends.h"

namespace strata {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const KindOptions& options) {
  const bool any = name == "auto" || name.empty();
  const bool chosen = options.devices.choice.given();
  if (chosen && (name == "cpu" || name == "mlx")) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_DEVICES",
                 absl::StrCat("--devices chooses GPUs, and --backend ", std::string(name),
                              " has none to choose from"))
        .Hint("leave out --devices, or use --backend cuda");
  }
  if (name == "cpu") {
    return MakeCpuBackend(options.cpu, options.any);
  }
  if (name == "cuda" || (any && chosen)) {
    return MakeCudaBackend(options.devices, options.any);
  }
  if (name == "mlx") {
    return MakeMlxBackend(options.any);
  }
  if (any) {
    // The fastest that this build and machine have. Only absence goes on to the next.
    for (const bool mlx : {false, true}) {
      if (mlx && !MlxHasGpu()) {
        continue;
      }
      auto backend =
          mlx ? MakeMlxBackend(options.any) : MakeCudaBackend(options.devices, options.any);
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
