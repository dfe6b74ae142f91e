// The header of a safetensors file: 8 bytes for the size of the data behind it (big-endian, so that
// small files are easy to write), then the header's JSON.
#include <algorithm>

#include "common/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/status.h"
#include "tests/fuzz/input.h"

namespace strata {
namespace {

void CheckCover(std::vector<TensorEntry> tensors, uint64_t data_start, uint64_t data_bytes) {
  uint64_t most_bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    unsigned __int128 bits = DtypeBits(tensor.dtype);
    for (const uint64_t dimension : tensor.shape) {
      bits *= dimension;
      STRATA_CHECK(bits / 8 <= data_bytes);
    }
    STRATA_CHECK(bits == static_cast<unsigned __int128>(tensor.bytes) * 8 && !tensor.name.empty());
    STRATA_CHECK(tensor.offset >= data_start && tensor.bytes <= data_bytes &&
                 tensor.offset - data_start <= data_bytes - tensor.bytes);
    most_bytes += tensor.bytes;
  }
  STRATA_CHECK(most_bytes == data_bytes);
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  const uint64_t data_bytes = input.Uint64();
  const std::string header = input.Bytes(size);
  const uint64_t data_start = 8 + header.size();
  auto tensors = ParseSafetensorsHeader(header, data_bytes, data_start, "model.safetensors");
  if (tensors.ok()) {
    CheckCover(*std::move(tensors), data_start, data_bytes);
  } else {
    STRATA_CHECK(!ReasonOf(tensors.status()).empty() && tensors.status().message().size() < 4096);
  }
  return 0;
}
