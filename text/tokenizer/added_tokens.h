// Tokens that are found in text before it is cut: special ones, and others beside the model.
#ifndef STRATA_TEXT_TOKENIZER_ADDED_TOKENS_H_
#define STRATA_TEXT_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenized.h"
#include "text/tokenizer/vocabulary.h"

namespace strata {

struct AddedToken {
  std::string content;
  bool special = false;      // Left out by skip-special decoding.
  bool lstrip = false;       // Takes white space before it.
  bool rstrip = false;       // Takes white space behind it.
  bool single_word = false;  // Not next to a word character.
  bool normalized = false;   // Found in the normalized text, by its normalized content.
  bool operator==(const AddedToken&) const = default;
};

// Const after construction; any thread.
class AddedTokens {
 public:
  // Text, or a token found in it.
  struct Part {
    TextRange range;
    std::optional<uint32_t> id;
  };

  // In the file's order, then `later` ones, from the files beside it. A token that `model` has
  // keeps its id, and the others are numbered from the number of the model's tokens, `later` ones
  // also behind all before them. One that is there twice has what the last says, but stays special.
  // `normalizer` may be null. With `split_special` no special token is looked for in a text.
  static absl::StatusOr<AddedTokens> Make(std::vector<AddedToken> tokens, const Vocabulary& model,
                                          const Normalizer* normalizer,
                                          std::vector<AddedToken> later = {},
                                          bool split_special = false);

  // Cuts `text` at the tokens that are looked for before normalization, or (`normalized`) after.
  // Leftmost first, the longest of those.
  std::vector<Part> Find(std::string_view text, bool normalized) const;

  std::optional<uint32_t> IdOf(std::string_view content) const;
  // Nullptr for an id that is no added token's.
  const AddedToken* TokenOf(uint32_t id) const;
  // What decoders get of it: its content, as the normalizer leaves that for one that is, or was by
  // an earlier entry, found in normalized text (as tokenizers 0.23 has it). Nullptr as above.
  const std::string* DecodedAs(uint32_t id) const;
  bool IsSpecial(uint32_t id) const {
    const AddedToken* token = TokenOf(id);
    return token != nullptr && token->special;
  }
  // The most bytes of a text that one of them takes; 0: not bounded, as where white space around
  // it goes with it.
  size_t max_bytes() const { return max_bytes_; }
  // Above all ids; 0 without tokens.
  uint32_t id_end() const { return id_end_; }

 private:
  // Each as the last says that there is of its content; an id for each that has none.
  absl::Status Number(const std::vector<AddedToken>& tokens, const Vocabulary& model,
                      const Normalizer* normalizer);

  absl::flat_hash_map<std::string, uint32_t> ids_;
  absl::flat_hash_map<uint32_t, AddedToken> tokens_;
  absl::flat_hash_map<uint32_t, std::string> decoded_;  // Of those that it changes.
  bool split_special_ = false;
  uint32_t id_end_ = 0;
  size_t max_bytes_ = 1;
  ByteTrie raw_;
  ByteTrie normalized_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_ADDED_TOKENS_H_
