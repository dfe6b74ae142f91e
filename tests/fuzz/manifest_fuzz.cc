// The JSON of a manifest, as the coordinator's store has it.
#include "common/check.h"
#include "common/status.h"
#include "coordinator/registry/manifest.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  const auto manifest = ManifestFromJson({reinterpret_cast<const char*>(data), size});
  if (!manifest.ok()) {
    STRATA_CHECK(!ReasonOf(manifest.status()).empty());
    return 0;
  }
  const WeightAccount account = AccountWeights(*manifest);
  STRATA_CHECK(account.layer_bytes.size() == manifest->spec.layers.size());
  STRATA_CHECK(TotalKvBytesPerToken(manifest->spec, 2) > 0);
  const std::string json = ManifestToJson(*manifest);
  const auto again = ManifestFromJson(json);
  STRATA_CHECK(again.ok() && ManifestToJson(*again) == json);
  STRATA_CHECK(again->tensors == manifest->tensors && again->files == manifest->files);
  return 0;
}
