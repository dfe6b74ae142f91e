// A chat template, a line of "----", and its variables as JSON (a fixed conversation if they are
// none). The limits are far below the real ones, so that a run is short.
#include <nlohmann/json.hpp>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "text/template/chat_template.h"
#include "text/template/template_jsonl.h"

namespace strata {
namespace {

constexpr TemplateLimits kLimits = {.max_steps = 20'000,
                                    .max_output_bytes = 64 << 10,
                                    .max_value_bytes = 256 << 10,
                                    .max_depth = 200,
                                    .max_source_bytes = 64 << 10};

constexpr char kConversation[] = R"({
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi\n"},
               {"role": "assistant", "content": "h\u00e9llo <b>", "n": [1, -2, 3.5, null, true]}],
  "tools": [{"name": "f", "parameters": {"x": {"type": "integer"}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})";

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  const auto texts = fuzz::Sections(data, size, 2);
  const auto chat_template = ParseChatTemplate(texts[0], kLimits);
  if (!chat_template.ok()) {
    STRATA_CHECK(!chat_template.status().message().empty());
    return 0;
  }
  auto variables = ParseTemplateJson(texts[1]);
  if (!variables.ok() || !variables->is_object()) {
    variables = ParseTemplateJson(kConversation);
    STRATA_CHECK(variables.ok());
  }
  const auto output = (*chat_template)->Render(*variables, 1'700'000'000);
  if (output.ok()) {
    STRATA_CHECK(output->size() <= kLimits.max_output_bytes);
  } else {
    STRATA_CHECK(!output.status().message().empty());
  }
  return 0;
}
