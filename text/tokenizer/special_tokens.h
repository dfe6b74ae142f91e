// Tokens beside a model's own, as tokenizer_config.json and added_tokens.json have them. For
// checkpoints without tokenizer.json, which has them itself.
#ifndef STRATA_TEXT_TOKENIZER_SPECIAL_TOKENS_H_
#define STRATA_TEXT_TOKENIZER_SPECIAL_TOKENS_H_

#include <cstdint>
#include <map>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/added_tokens.h"

namespace strata {

using SpecialTokens = std::map<uint64_t, AddedToken>;  // By id.

// {"added_tokens_decoder": {"151643": {"content": "<|endoftext|>", "special": true, ...}}}; "": no
// file.
absl::StatusOr<SpecialTokens> ParseAddedTokensDecoder(std::string_view tokenizer_config);

// Adds those of added_tokens.json, {"<pad>": 32000}, that are not there; "": no file.
absl::Status AddAddedTokensJson(std::string_view added_tokens, SpecialTokens* tokens);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_SPECIAL_TOKENS_H_
