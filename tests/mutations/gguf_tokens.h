// What the tokenizer's keys of a GGUF file mean for a text, read a second time: of vocabularies in
// which no two tokens make a third, so that nothing is merged.
#ifndef STRATA_TESTS_MUTATIONS_GGUF_TOKENS_H_
#define STRATA_TESTS_MUTATIONS_GGUF_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/mutations/gguf_keys.h"

namespace strata::testing {

// A text that has letters, which bytes or the unknown token stand for, and a special token.
std::string SampleText(const GgufKeys& keys);

// Its ids, with the tokens that are put around it.
std::vector<uint32_t> GgufTokensOf(const GgufKeys& keys, const std::string& text);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_GGUF_TOKENS_H_
