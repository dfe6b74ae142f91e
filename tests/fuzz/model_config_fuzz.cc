// config.json and generation_config.json, a line of "----" between them.
#include <cmath>
#include <string>

#include "common/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/generation_config.h"
#include "common/limits.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "tests/fuzz/input.h"

namespace strata {
namespace {

void CheckSpec(const ModelSpec& spec) {
  STRATA_CHECK(!spec.layers.empty() && spec.layers.size() <= kMaxLayers);
  STRATA_CHECK(spec.hidden > 0 && spec.hidden <= kMaxHiddenSize);
  STRATA_CHECK(spec.vocab > 0 && spec.vocab <= kMaxVocabSize);
  STRATA_CHECK(spec.context > 0 && spec.context <= kMaxContextTokens);
  STRATA_CHECK(!spec.kv_groups.empty());
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = layer.attention;
    STRATA_CHECK(a.kv_group < spec.kv_groups.size());
    STRATA_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0 && a.head_dim > 0);
    STRATA_CHECK(a.rope.rotary_dim % 2 == 0 && a.rope.rotary_dim <= a.head_dim);
    STRATA_CHECK(std::isfinite(a.scale) && std::isfinite(layer.norm_eps) && layer.mlp.ffn > 0);
  }
  const auto last = static_cast<uint32_t>(spec.layers.size() - 1);
  STRATA_CHECK(TensorsOf(spec, 0, last, true, true).size() >= spec.layers.size());
  // Every matrix quantized, and each expert by itself.
  const auto stored = [](const std::string& name) {
    return name.find(".switch_mlp.") == std::string::npos &&
           name.find(".experts.gate_up_proj") == std::string::npos;
  };
  STRATA_CHECK(TensorsOf(spec, 0, last, true, true, stored).size() >=
               TensorsOf(spec, 0, last, true, true).size());
  STRATA_CHECK(KvBytesPerToken(spec, 0, last, 0, 2) > 0);
  for (const float value : MakeRotaryTables(spec, 4)) {
    STRATA_CHECK(std::isfinite(value));
  }
}

void CheckError(const absl::Status& status) {
  STRATA_CHECK(!ReasonOf(status).empty() && status.message().size() < 4096);
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  const auto texts = fuzz::Sections(data, size, 2);
  const auto spec = ParseModelConfig(texts[0], texts[1]);
  spec.ok() ? CheckSpec(*spec) : CheckError(spec.status());
  std::vector<std::string> notes;
  const auto defaults = ParseGenerationDefaults(texts[1], &notes);
  if (defaults.ok()) {
    STRATA_CHECK(ValidateSampling(*defaults, kMaxVocabSize).ok());
  } else {
    CheckError(defaults.status());
  }
  return 0;
}
