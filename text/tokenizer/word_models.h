// Models of whole words: "WordPiece", as BERT has it, and "WordLevel".
#ifndef STRATA_TEXT_TOKENIZER_WORD_MODELS_H_
#define STRATA_TEXT_TOKENIZER_WORD_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/token_model.h"

namespace strata {

struct WordPieceOptions {
  std::string unknown_token;
  std::string prefix;         // Of tokens that are not a word's first: "##".
  size_t max_characters = 0;  // A longer word is unknown.
};

// Cuts each word into the longest tokens, from its beginning; a word that has a part which is no
// token is unknown as a whole. INVALID_ARGUMENT for an unknown word where the vocabulary lacks the
// token for it.
class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(Vocabulary vocabulary, const WordPieceOptions& options);
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  absl::Status Tokenize(std::string_view text, std::span<const TextRange> pieces, size_t most,
                        std::vector<uint32_t>* ids) const override;

 private:
  // Appends the ids of a word; false, and no ids, if it is unknown.
  bool Cut(std::string_view word, std::vector<uint32_t>* ids) const;

  const Vocabulary vocabulary_;
  const WordPieceOptions options_;
  const std::optional<uint32_t> unknown_id_;
  ByteTrie first_;  // All tokens.
  ByteTrie next_;   // What those with the prefix have behind it.
};

// Each word is a token, or unknown; errors as above.
class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(Vocabulary vocabulary, const std::string& unknown_token);
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  absl::Status Tokenize(std::string_view text, std::span<const TextRange> pieces, size_t most,
                        std::vector<uint32_t>* ids) const override;

 private:
  const Vocabulary vocabulary_;
  const std::string unknown_token_;
  const std::optional<uint32_t> unknown_id_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_WORD_MODELS_H_
