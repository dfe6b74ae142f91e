// One JSON document a line in, one out: what `strata-coordinator tokenize --jsonl` and
// `detokenize --jsonl` do with each line. Pure; any thread.
#ifndef STRATA_TEXT_TOKENIZER_TOKENIZE_JSONL_H_
#define STRATA_TEXT_TOKENIZER_TOKENIZE_JSONL_H_

#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace strata {

// {"text", "add_special_tokens" (default true)} to {"ids"}; {"error"} for a line that is refused.
// Without a line end.
std::string TokenizeLine(const Tokenizer& tokenizer, std::string_view line);

// {"ids", "skip_special_tokens" (default true)} to {"text"}; {"error"} for a line that is refused.
std::string DetokenizeLine(const Tokenizer& tokenizer, std::string_view line);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_TOKENIZE_JSONL_H_
