// The normalization that SentencePiece compiles into a model: a double-array trie of what is
// replaced, and a text of what by.
#ifndef STRATA_TEXT_TOKENIZER_CHARS_MAP_H_
#define STRATA_TEXT_TOKENIZER_CHARS_MAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

// Const; any thread.
class CharsMap {
 public:
  // `bytes`: u32 little-endian size of the trie, its u32 units, replacements that end in NUL.
  // INVALID_ARGUMENT for one that is cut short. An empty one replaces nothing.
  static absl::StatusOr<CharsMap> Make(std::string_view bytes);

  bool empty() const { return units_.empty(); }
  // What the shortest beginning of `text` that the trie has becomes.
  std::optional<std::string_view> Shortest(std::string_view text) const;
  // What the longest one becomes, and how long it is.
  std::optional<std::pair<std::string_view, size_t>> Longest(std::string_view text) const;

 private:
  CharsMap(std::vector<uint32_t> units, std::string replacements)
      : units_(std::move(units)), replacements_(std::move(replacements)) {}
  // visit(replacement, length) for each beginning of `text`, from the shortest; one that is broken
  // is nothing. Ends when visit says false.
  template <typename Visit>
  void ForEach(std::string_view text, Visit visit) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_CHARS_MAP_H_
