#include "tests/worker/backend/cpu_backend.h"

#include <gtest/gtest.h>

#include <utility>

#include "worker/backend/cpu/cpu_backend.h"

namespace strata::testing {

std::unique_ptr<Backend> CpuBackendOn(const std::string& isa, uint32_t threads) {
  auto backend = MakeCpuBackend({.threads = threads, .isa = isa});
  EXPECT_TRUE(backend.ok()) << backend.status();
  if (!isa.empty()) {
    EXPECT_EQ((*backend)->facts().kind, isa) << "this build has no kernels for " << isa;
  }
  ::testing::Test::RecordProperty("ran_" + (*backend)->facts().kind, 1);
  return *std::move(backend);
}

}  // namespace strata::testing
