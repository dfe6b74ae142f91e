// "Precompiled": the normalization that SentencePiece compiles into a model, a double-array trie of
// what is replaced and a text of what by.
#ifndef STRATA_TEXT_TOKENIZER_PRECOMPILED_H_
#define STRATA_TEXT_TOKENIZER_PRECOMPILED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/chars_map.h"
#include "text/tokenizer/normalizer.h"

namespace strata {

class PrecompiledNormalizer : public Normalizer {
 public:
  // See CharsMap::Make.
  static absl::StatusOr<std::unique_ptr<PrecompiledNormalizer>> Make(std::string_view charsmap);

  // A grapheme cluster of less than 6 bytes is replaced as a whole if the trie has it or a
  // beginning of it; else each character is, on its own. SentencePiece itself takes the longest
  // match wherever it is: Hugging Face's reading is the one that models meet in training.
  absl::Status Apply(NormalizedText* text) const override;

 private:
  explicit PrecompiledNormalizer(CharsMap map) : map_(std::move(map)) {}

  const CharsMap map_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_PRECOMPILED_H_
