// Second stage of a tokenizer: cuts text into the pieces that the model sees one at a time.
#ifndef STRATA_TEXT_TOKENIZER_PRE_TOKENIZER_H_
#define STRATA_TEXT_TOKENIZER_PRE_TOKENIZER_H_

#include "absl/status/status.h"
#include "text/tokenizer/pre_tokenized.h"

namespace strata {

// Const and usable by any thread.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Cuts each piece further, and may rewrite it. RESOURCE_EXHAUSTED when a pattern gives up.
  virtual absl::Status Apply(PreTokenized* text) const = 0;
  // As Normalizer's.
  virtual size_t max_shrink() const { return 0; }
  virtual bool makes_byte_alphabet() const { return false; }
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_PRE_TOKENIZER_H_
