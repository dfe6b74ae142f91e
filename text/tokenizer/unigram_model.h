// SentencePiece's unigram model: of all ways to cut a piece into tokens, the one with the best sum
// of scores.
#ifndef STRATA_TEXT_TOKENIZER_UNIGRAM_MODEL_H_
#define STRATA_TEXT_TOKENIZER_UNIGRAM_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/token_model.h"

namespace strata {

struct UnigramOptions {
  // What a character that no token has becomes; several in a row become one.
  std::optional<uint32_t> unknown_id;
  // Such a run becomes its bytes' tokens "<0x00>" to "<0xFF>", if they are all there.
  bool byte_fallback = false;
  // SentencePiece's own reading, where Hugging Face's library differs: sums are float32, and tokens
  // that are `unmatched` (by id; empty: none) are in no text.
  bool as_sentencepiece = false;
  std::vector<bool> unmatched = {};
};

class UnigramModel : public TokenModel {
 public:
  // Tokens and scores by id. INVALID_ARGUMENT for an unknown_id that is no token, an empty
  // vocabulary, and tokens of more than kMaxTokenBytes.
  static absl::StatusOr<std::unique_ptr<UnigramModel>> Make(
      std::vector<std::pair<std::string, double>> tokens, UnigramOptions options);
  static constexpr size_t kMaxTokenBytes = 4096;

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  // O(n) in a piece's length, times the longest token's.
  absl::Status Tokenize(std::string_view text, std::span<const TextRange> pieces, size_t most,
                        std::vector<uint32_t>* ids) const override;
  size_t max_bytes_per_id(bool byte_alphabet) const override;

 private:
  struct Node;
  static constexpr uint32_t kNoToken = ~uint32_t{0};

  UnigramModel(Vocabulary vocabulary, UnigramOptions options)
      : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}
  // Fills *nodes with the best way to each byte offset of the piece.
  absl::Status FindBest(std::string_view piece, std::vector<Node>* nodes) const;
  // Appends the ids along the best way.
  void AppendBest(std::string_view piece, std::vector<Node>* nodes,
                  std::vector<uint32_t>* ids) const;
  void AppendUnknown(std::string_view run, std::vector<uint32_t>* ids) const;

  const Vocabulary vocabulary_;
  const UnigramOptions options_;
  std::vector<double> scores_;  // By id.
  double unknown_score_ = 0;
  ByteTrie trie_;
  std::array<uint32_t, 256> byte_ids_;  // kNoToken where there is none.
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_UNIGRAM_MODEL_H_
