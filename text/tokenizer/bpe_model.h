// Byte-pair encoding: joins neighbouring symbols by the rank of their merge.
#ifndef STRATA_TEXT_TOKENIZER_BPE_MODEL_H_
#define STRATA_TEXT_TOKENIZER_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "text/tokenizer/piece_cache.h"
#include "text/tokenizer/token_model.h"

namespace strata {

struct BpeOptions {
  // A piece that is a token as a whole is taken without merging.
  bool ignore_merges = false;
  // A character that is no token becomes its bytes' tokens "<0x00>" to "<0xFF>".
  bool byte_fallback = false;
  // Else it becomes this; without one it is dropped. Where the vocabulary lacks it, such a text is
  // refused.
  std::optional<std::string> unknown_token;
  // Several such in a row become one.
  bool fuse_unknown = false;
  // What all characters of a piece but the first have in front, and its last one has behind it, in
  // the vocabulary; a merge drops the prefix of its right side.
  std::string prefix = "";
  std::string suffix = "";
};

// A merge by ids of tokens: what stands left, what stands right, and what they make.
struct BpeMerge {
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t made = 0;
};

// The merge number `rank` of a list by its texts, of which the right one loses its first
// `prefix_bytes`. INVALID_ARGUMENT if it names or makes something that is no token.
absl::StatusOr<BpeMerge> MergeOfTexts(const Vocabulary& vocabulary, std::string_view left,
                                      std::string_view right, size_t rank, size_t prefix_bytes = 0);

class BpeModel : public TokenModel {
 public:
  // `merges` by rank, or with `ranks`: of two with the same rank the leftmost is done first. Their
  // ids are those of tokens.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Make(Vocabulary vocabulary,
                                                        std::span<const BpeMerge> merges,
                                                        BpeOptions options,
                                                        std::span<const uint32_t> ranks = {});
  // The same by texts. INVALID_ARGUMENT if a merge names or makes something that is no token.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Make(
      Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
      BpeOptions options, std::span<const uint32_t> ranks = {});

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  // O(n log n) in a piece's length.
  absl::Status Tokenize(std::string_view text, std::span<const TextRange> pieces, size_t most,
                        std::vector<uint32_t>* ids) const override;
  size_t max_bytes_per_id(bool byte_alphabet) const override;
  // How many pairs of neighbours are looked at to merge one piece: what its cost is, for tests.
  size_t CountLookups(std::string_view piece) const;

 private:
  struct Merge {
    uint32_t rank = 0;
    uint32_t id = 0;  // Of what it makes.
  };
  struct Scratch;
  // Characters below this are looked up in an array.
  static constexpr char32_t kDirectCharacters = 0x400;
  static constexpr uint32_t kNoToken = ~uint32_t{0};

  BpeModel(Vocabulary vocabulary, BpeOptions options);
  static uint64_t Pair(uint32_t left, uint32_t right) { return (uint64_t{left} << 32) | right; }

  // Learns which characters are ever joined to a mark behind them.
  void LearnMarks(std::span<const BpeMerge> merges);
  // Where the word that begins at `begin` ends: before the next mark that nothing joins.
  size_t WordEnd(std::string_view piece, size_t begin) const;
  // Appends the ids of a word, which no merge joins to what is around it.
  void TokenizeWord(std::string_view word, Scratch* scratch, PieceCache* seen,
                    std::vector<uint32_t>* ids) const;
  // Writes the symbols of a piece's characters.
  void Begin(std::string_view piece, Scratch* scratch) const;
  bool PushBytes(std::string_view character, Scratch* scratch) const;
  // The character at [begin, end) of a piece, with what its place puts around it.
  std::string Affixed(std::string_view piece, size_t begin, size_t end) const;
  void PushMerge(uint32_t left, uint32_t right, Scratch* scratch) const;
  // Joins symbols until no merge applies.
  void MergeAll(Scratch* scratch) const;

  const Vocabulary vocabulary_;
  const BpeOptions options_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  std::array<uint32_t, kDirectCharacters> character_ids_;
  std::optional<uint32_t> unknown_id_;
  bool affixes_ = false;  // Whether there is a prefix or a suffix.
  // Files without a pre-tokenizer make a whole text one piece. Its words are merged on their own
  // where that is the same: before a U+2581 whose left neighbour no merge joins to one.
  bool cut_at_marks_ = false;
  absl::flat_hash_set<char32_t> glued_;  // Characters that a merge joins to a mark behind them.
  std::array<uint32_t, 256> byte_ids_;   // For byte_fallback; kNoToken where there is none.
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_BPE_MODEL_H_
