#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace strata::internal {

void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", file, line, what);
  std::abort();
}

}  // namespace strata::internal
