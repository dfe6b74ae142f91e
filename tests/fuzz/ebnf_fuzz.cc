// A grammar of a client's, a line of "----", a text. What is taken has a text, and is written and
// read again as a grammar that judges the text alike.
#include "common/check.h"
#include "common/status.h"
#include "tests/fuzz/input.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

// Far below the real ones, so that a run is short.
constexpr GrammarLimits kLimits = {.max_source_bytes = 8 << 10,
                                   .max_pattern_depth = 16,
                                   .max_rules = 500,
                                   .max_expressions = 5'000,
                                   .max_count = 50};

void Check(const std::string& ebnf, std::string_view text) {
  const auto grammar = GrammarOfEbnf(ebnf, kLimits);
  if (!grammar.ok()) {
    STRATA_CHECK(!ReasonOf(grammar.status()).empty());
    return;
  }
  STRATA_CHECK(!grammar->IsEmpty());
  const auto again = GrammarOfEbnf(EbnfOf(*grammar), {});
  STRATA_CHECK(again.ok());
  const auto first = Recognizer::Make(*grammar, 20'000);
  const auto second = Recognizer::Make(*again, 20'000);
  if (!first.ok() || !second.ok()) {
    return;
  }
  const std::string_view cut = text.substr(0, 64);
  const auto verdict = first->Check(cut);
  STRATA_CHECK(verdict.complete == second->Check(cut).complete);
  STRATA_CHECK(verdict.prefix <= cut.size());
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto texts = strata::fuzz::Sections(data, size, 2);
  strata::Check(std::string(texts[0]), texts[1]);
  return 0;
}
