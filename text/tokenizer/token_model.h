// Third stage of a tokenizer: pieces of text to token ids.
#ifndef STRATA_TEXT_TOKENIZER_TOKEN_MODEL_H_
#define STRATA_TEXT_TOKENIZER_TOKEN_MODEL_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "text/tokenizer/pre_tokenized.h"
#include "text/tokenizer/vocabulary.h"

namespace strata {

// Const and usable by any thread.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual const Vocabulary& vocabulary() const = 0;
  // Appends the ids of each piece of `text` in turn, until there are more than `most` in *ids:
  // those of what is behind are left out then. INVALID_ARGUMENT for what the vocabulary cannot say,
  // if it has nothing for the unknown.
  virtual absl::Status Tokenize(std::string_view text, std::span<const TextRange> pieces,
                                size_t most, std::vector<uint32_t>* ids) const = 0;
  // The most bytes that one id stands for; 0: not bounded. `byte_alphabet`: of texts of those
  // characters only, of which each stands for one byte.
  virtual size_t max_bytes_per_id(bool byte_alphabet) const { return 0; }
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_TOKEN_MODEL_H_
