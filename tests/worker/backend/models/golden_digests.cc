#include "tests/worker/backend/models/golden_digests.h"

#include <gtest/gtest.h>

#include <string_view>

#include "common/digest.h"
#include "common/model/numerics_class.h"
#include "nlohmann/json.hpp"
#include "tests/golden.h"

namespace strata::testing {
namespace {

std::string WeightsName(const GoldenModel& model, const GoldenFormat& format) {
  return format.quantize == v1::QUANTIZE_INT8   ? "int8"
         : format.quantize == v1::QUANTIZE_INT4 ? "int4"
                                                : model.weights_dtype;
}
std::string HeadName(const GoldenModel& model, const GoldenFormat& format) {
  return format.quantize == v1::QUANTIZE_NONE ? model.head_dtype : "int8";
}

}  // namespace

std::string GoldenDigestsPath() { return GoldenPath("bits.json"); }

GoldenDigests ReadGoldenDigests() {
  const auto file = nlohmann::json::parse(ReadFileOrFail(GoldenDigestsPath()), nullptr, false);
  EXPECT_TRUE(file.is_object());
  return file.is_object() ? file.get<GoldenDigests>() : GoldenDigests();
}

std::string DigestOf(const std::vector<float>& logits) {
  return Sha256Hex(std::string_view(reinterpret_cast<const char*>(logits.data()),
                                    logits.size() * sizeof(float)));
}

std::string ClassOf(const std::string& numerics, const GoldenModel& model,
                    const GoldenFormat& format, v1::KvDtype kv) {
  return NumericsClassName(numerics, WeightsName(model, format), HeadName(model, format),
                           format.activations == v1::ACTIVATIONS_INT8 ? "int8" : "f32",
                           kv == v1::KV_DTYPE_F32 ? "f32" : "f16");
}

}  // namespace strata::testing
