// A JSON schema, a line of "----", a text; or, where the first byte is a slash, a pattern behind
// it. What is taken becomes a grammar that has a text, and whose texts' beginnings are found again.
#include "common/check.h"
#include "common/status.h"
#include "tests/fuzz/input.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

// Far below the real ones, so that a run is short.
constexpr GrammarLimits kLimits = {.max_source_bytes = 8 << 10,
                                   .max_depth = 32,
                                   .max_nodes = 500,
                                   .max_pattern_depth = 16,
                                   .max_states = 300,
                                   .max_total_states = 20'000,
                                   .max_alternatives = 32,
                                   .max_total_alternatives = 2'000,
                                   .max_rules = 2'000,
                                   .max_expressions = 20'000,
                                   .max_count = 300,
                                   .max_whitespace = 4};

void CheckGrammar(const absl::StatusOr<Grammar>& grammar, std::string_view text) {
  if (!grammar.ok()) {
    STRATA_CHECK(!ReasonOf(grammar.status()).empty());
    return;
  }
  STRATA_CHECK(!grammar->IsEmpty());
  STRATA_CHECK(grammar->CheckSize(kLimits).ok());
  STRATA_CHECK(!EbnfOf(*grammar).empty());
  const absl::StatusOr<Recognizer> recognizer = Recognizer::Make(*grammar, 50'000);
  if (!recognizer.ok()) {
    return;
  }
  const std::string_view cut = text.substr(0, 256);
  const Recognizer::Verdict whole = recognizer->Check(cut);
  STRATA_CHECK(whole.prefix <= cut.size());
  STRATA_CHECK(!whole.complete || whole.prefix == cut.size());
  STRATA_CHECK(recognizer->Check(cut.substr(0, whole.prefix)).prefix == whole.prefix);
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  const auto texts = fuzz::Sections(data, size, 2);
  if (texts[0].starts_with('/')) {
    CheckGrammar(GrammarOfPattern(texts[0].substr(1), kLimits), texts[1]);
    return 0;
  }
  for (const bool closed : {false, true}) {
    CheckGrammar(GrammarOfSchema(texts[0], {.closed = closed, .limits = kLimits}), texts[1]);
  }
  return 0;
}
