// A backend by the name of its kind: the one place that knows them all.
#ifndef STRATA_WORKER_BACKEND_KINDS_MAKE_BACKEND_H_
#define STRATA_WORKER_BACKEND_KINDS_MAKE_BACKEND_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/device_choice.h"

namespace strata {

// What all are opened with, and what each kind is told besides.
struct KindOptions {
  BackendOptions any = {};
  CpuOptions cpu = {};
  DeviceOptions devices = {};  // Of "cuda", which "auto" is where devices were chosen.
};

// "auto", "cpu", "cuda" or "mlx". A backend that this build lacks is UNIMPLEMENTED and says how to
// get it; an instruction set that the machine lacks is INVALID_ARGUMENT, and so are chosen devices
// of another backend (BAD_DEVICES).
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const KindOptions& options);

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_KINDS_MAKE_BACKEND_H_
