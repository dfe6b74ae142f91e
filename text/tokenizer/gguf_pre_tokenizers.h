// How texts are cut before their pieces are merged, by the name that a GGUF file's
// tokenizer.ggml.pre gives. Facts: the table of pre-tokenizers of github.com/ggml-org/llama.cpp
// (src/llama-vocab.cpp) and the published tokenizer.json files that its names stand for.
#ifndef STRATA_TEXT_TOKENIZER_GGUF_PRE_TOKENIZERS_H_
#define STRATA_TEXT_TOKENIZER_GGUF_PRE_TOKENIZERS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace strata {

struct GgufPreTokenizer {
  // Patterns; each cuts the pieces that those before it left.
  static constexpr int kMostSplits = 6;

  std::string_view name;
  const char* splits[kMostSplits] = {};
  bool whole_words = false;  // A piece that is a token is not merged ("ignore_merges").
  bool adds_bos = false;     // Where the file does not say.
  bool nfc = false;
};

// Of GPT-2's kind of tokenizer; null where the name is not known. "" is a file without the key,
// which is cut as "default" is.
const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name);

// All names.
std::vector<std::string_view> GgufPreTokenizerNames();

// The patterns, and then the bytes' characters.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeGgufPreTokenizer(const GgufPreTokenizer& row);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_GGUF_PRE_TOKENIZERS_H_
