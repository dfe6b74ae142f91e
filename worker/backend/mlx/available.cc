#include "worker/backend/mlx/available.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "mlx/memory.h"

namespace strata::mlx {

absl::Status CheckAvailable(std::string_view what, uint64_t bytes, uint64_t shared_bytes) {
  const auto refused = [&](uint64_t left, const char* of) {
    return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                 absl::StrCat(std::string(what), " needs ", FormatSize(bytes), " where ",
                              FormatSize(left), of))
        .Limit(absl::StrCat("available=", FormatSize(left)))
        .Hint("load fewer layers or fewer KV tokens on this node");
  };
  const uint64_t available = AvailableMemoryBytes();
  if (available != 0 && bytes > available) {
    return refused(available, " are available");
  }
  if (shared_bytes != 0) {
    const uint64_t left =
        shared_bytes - std::min<uint64_t>(shared_bytes, ::mlx::core::get_active_memory());
    if (bytes > left) {
      return refused(
          left, absl::StrCat(" are left of the ", FormatSize(shared_bytes), " that the GPU holds")
                    .c_str());
    }
  }
  return absl::OkStatus();
}

}  // namespace strata::mlx
