// The merges of a vocabulary of SentencePiece's kind, which a GGUF file does not list.
#ifndef STRATA_TEXT_TOKENIZER_SCORE_MERGES_H_
#define STRATA_TEXT_TOKENIZER_SCORE_MERGES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/vocabulary.h"

namespace strata {

// What it took, for tests.
struct ScoreMergeSteps {
  uint64_t cuts = 0;   // Of tokens into two texts.
  uint64_t bytes = 0;  // Of texts that were looked up.
};

// A token is merged from any two that it is made of, the one with the highest score first; of equal
// scores as transformers makes merges of them: that with the longer left part in characters, then
// the longer right part, then the lower id. `scores` and `merged` are by id, `merged` says which
// tokens are made by merges. Linear in the vocabulary's bytes. INVALID_ARGUMENT
// (TOKENIZER_TOO_LARGE) where there are more merges than any published vocabulary has.
absl::StatusOr<std::vector<BpeMerge>> MergesOfScores(const Vocabulary& vocabulary,
                                                     std::span<const float> scores,
                                                     const std::vector<bool>& merged,
                                                     ScoreMergeSteps* steps = nullptr);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_SCORE_MERGES_H_
