// strata-worker selftest: whether this machine computes a row to the same bits however rows are put
// together, as a numerics class promises. Where a library chooses kernels by the number of rows or
// keys (MLX on Metal), only the machine itself can say.
#ifndef STRATA_WORKER_SERVICE_SELFTEST_H_
#define STRATA_WORKER_SERVICE_SELFTEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/app/flags.h"
#include "worker/backend/backend.h"

namespace strata {

// Made-up models of random weights that are computed: a few layers of these sizes.
struct SelftestModel {
  std::string name;
  uint32_t layers = 2;
  uint32_t hidden = 0;
  uint32_t ffn = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t vocab = 0;
  uint32_t positions = 0;  // Of a sequence, at least 16.
};
// Wide rows, as those of small models; and a sequence that is longer than a span of keys.
std::vector<SelftestModel> SelftestModels();

// One way to put the rows of a sequence together, beside one position after another.
struct SelftestFinding {
  std::string what;         // "wide int4, in chunks of 7"
  uint64_t numbers = 0;     // Logits that were compared.
  uint64_t different = 0;   // Of them, in some bit.
  double largest_part = 0;  // The largest difference, over the largest logit.
};
struct SelftestReport {
  std::string backend;
  std::string numerics;
  DeviceFacts device;
  std::vector<SelftestFinding> findings;

  bool AllSame() const;
};

// Computes all of it: as floats, and quantized to int8 and int4. A format that the backend refuses
// by BACKEND_UNSUPPORTED is left out.
absl::StatusOr<SelftestReport> RunSelftest(Backend* backend,
                                           const std::vector<SelftestModel>& models);

// For people, ending with what to do with it.
std::string ToText(const SelftestReport& report);

// Exit status: 0, 1 where bits differ or something failed, 2 for wrong use.
int SelftestMain(int argc, const char* const* argv, const GetEnvFn& get_env);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_SELFTEST_H_
