#include <string>
#include <utility>
#include <vector>

#include "tests/worker/backend/conformance/conforming_backends.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata::testing {

// A new kind of backend is one line here.
std::vector<BackendKind> AllKinds() {
  const auto named = [](std::string name) {
    return [name = std::move(name)] { return MakeBackend(name, {.cpu = {.threads = 2}}); };
  };
  return {{"cpu", named("cpu"), &CpuFootprint()},
          {"cuda", named("cuda"), &CudaFootprint()},
          {"mlx", named("mlx"), &MlxFootprint()}};
}

}  // namespace strata::testing
