// Tokenizers of checkpoints that have a file of tiktoken's ranks and no tokenizer.json.
#ifndef STRATA_TEXT_TOKENIZER_TIKTOKEN_H_
#define STRATA_TEXT_TOKENIZER_TIKTOKEN_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

// `ranks`: "base64 rank" a line. Such a file lacks the split pattern and the special tokens: its
// name says which pattern (qwen.tiktoken, tiktoken.model of Kimi, cl100k_base.tiktoken,
// o200k_base.tiktoken; others are refused), and the added_tokens_decoder of tokenizer_config.json
// ("" when absent) the tokens, or the name again.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTiktoken(std::string_view ranks,
                                                         std::string_view file_name,
                                                         std::string_view tokenizer_config);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_TIKTOKEN_H_
