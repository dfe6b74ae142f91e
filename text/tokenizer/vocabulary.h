// A model's tokens and their ids. Const after construction; any thread.
#ifndef STRATA_TEXT_TOKENIZER_VOCABULARY_H_
#define STRATA_TEXT_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace strata {

class Vocabulary {
 public:
  // What becomes of a token that is there with several ids.
  enum class Twice {
    kRefused,
    kLastWins,  // Text gets the last id; all decode.
  };

  // Tokens and ids in any order. INVALID_ARGUMENT for an id that two tokens have and for ids that
  // leave large gaps.
  static absl::StatusOr<Vocabulary> Make(std::vector<std::pair<std::string, uint64_t>> tokens,
                                         Twice twice = Twice::kRefused);

  std::optional<uint32_t> IdOf(std::string_view token) const;
  // Nullptr for an id that no token has.
  const std::string* TokenOf(uint32_t id) const;

  size_t token_count() const { return ids_.size(); }
  // Of the ids that a token has.
  size_t id_count() const { return id_count_; }
  // The bytes of the longest, or (`characters`) its characters. Looks at all of them.
  size_t LongestToken(bool characters) const;
  // Above all ids.
  uint32_t id_end() const { return static_cast<uint32_t>(tokens_.size()); }

 private:
  std::vector<std::string> tokens_;  // By id. Its buffer stays where it is when moved.
  std::vector<bool> present_;
  size_t id_count_ = 0;
  absl::flat_hash_map<absl::string_view, uint32_t> ids_;  // Views into tokens_.
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_VOCABULARY_H_
