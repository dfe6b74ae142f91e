// First stage of a tokenizer: rewrites text before it is cut.
#ifndef STRATA_TEXT_TOKENIZER_NORMALIZER_H_
#define STRATA_TEXT_TOKENIZER_NORMALIZER_H_

#include <string>

#include "absl/status/status.h"
#include "text/tokenizer/pre_tokenized.h"

namespace strata {

// Some text between added tokens.
struct NormalizedText {
  std::string text;  // Well-formed UTF-8.
  // Whether its first character comes from the input's first one, or stands behind a token with
  // which a text begins.
  bool at_start = false;
  size_t max_bytes = MaxGrownBytes(text.size());  // What stages may make of it.
};

// Const and usable by any thread.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // RESOURCE_EXHAUSTED when a pattern gives up; INVALID_ARGUMENT when the text grows too long.
  virtual absl::Status Apply(NormalizedText* text) const = 0;
  // How many bytes of a text may become one: each byte that Apply leaves stands for so many at
  // most. 0: not bounded, since something is dropped.
  virtual size_t max_shrink() const { return 0; }
  // Whether it leaves characters of the byte alphabet only.
  virtual bool makes_byte_alphabet() const { return false; }
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_NORMALIZER_H_
