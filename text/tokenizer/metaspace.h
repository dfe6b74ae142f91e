// "Metaspace", SentencePiece's way with blanks: they become a visible character, and words begin
// with it. A pre-tokenizer, and a step of decoding (decoder_steps.h).
#ifndef STRATA_TEXT_TOKENIZER_METASPACE_H_
#define STRATA_TEXT_TOKENIZER_METASPACE_H_

#include <string>
#include <utility>

#include "text/tokenizer/pre_tokenizer.h"

namespace strata {

enum class PrependScheme {
  kAlways,  // Every text between added tokens.
  kFirst,   // Only what begins the input.
  kNever,
};

struct MetaspaceOptions {
  std::string replacement = "\xE2\x96\x81";  // One character.
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  // Into words.
};

// A text that begins with the replacement, or with a blank, is not given another.
class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(MetaspaceOptions options) : options_(std::move(options)) {}
  absl::Status Apply(PreTokenized* text) const override;
  size_t max_shrink() const override { return 1; }

 private:
  const MetaspaceOptions options_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_METASPACE_H_
