// What becomes of the matches when a text is split at them.
#ifndef STRATA_TEXT_TOKENIZER_SPLIT_BEHAVIOR_H_
#define STRATA_TEXT_TOKENIZER_SPLIT_BEHAVIOR_H_

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/pre_tokenized.h"

namespace strata {

enum class SplitBehavior {
  kRemoved,             // Matches are dropped.
  kIsolated,            // Each is a piece.
  kMergedWithPrevious,  // Each ends the piece before it.
  kMergedWithNext,      // Each begins the piece behind it.
  kContiguous,          // Neighbouring ones are one piece.
};

// By the file's name: "Isolated", ...
std::optional<SplitBehavior> SplitBehaviorOf(std::string_view name);

// Cuts `piece` at `matches` (in order, without overlap, relative to the piece's begin) and appends
// what results, without empty pieces. `invert` exchanges matches and what is between them.
void SplitPiece(TextRange piece, std::span<const TextRange> matches, SplitBehavior behavior,
                bool invert, std::vector<TextRange>* pieces);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_SPLIT_BEHAVIOR_H_
