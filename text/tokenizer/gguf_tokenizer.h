// The tokenizer inside a GGUF file: tokenizer.ggml.*. The format: docs/gguf.md of
// github.com/ggml-org/ggml; what absent keys mean: src/llama-vocab.cpp of
// github.com/ggml-org/llama.cpp.
#ifndef STRATA_TEXT_TOKENIZER_GGUF_TOKENIZER_H_
#define STRATA_TEXT_TOKENIZER_GGUF_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

// OK, or NOT_FOUND (NO_TOKENIZER) where the file has none.
absl::Status CheckGgufHasTokenizer(const GgufHeader& header);

// UNIMPLEMENTED names the kind, or the tokenizer.ggml.pre, that is not supported; INVALID_ARGUMENT
// the key that is wrong; NOT_FOUND as above.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(const GgufHeader& header);
// Of the file at `path`; of a model in several files the first has it.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGgufTokenizer(const std::string& path);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_GGUF_TOKENIZER_H_
