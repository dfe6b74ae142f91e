// The sets behind tokens that an answer may have: its matcher goes ahead of it and comes back.
// Pure.
#ifndef STRATA_TEXT_MASKS_ANSWER_PATH_H_
#define STRATA_TEXT_MASKS_ANSWER_PATH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/masks/answer_matcher.h"
#include "text/masks/mask_compiler.h"

namespace strata {

// A token that a set leaves no other way than to begin with.
struct ForcedToken {
  uint32_t id = 0;
  bool only = false;  // No other token may come. Else others of its text, or longer ones, may.
};

// The longest token of the set that all others begin with, or that begins with them. Nothing where
// there is none, where the answer may end, and where so many may come that it is not looked for.
std::optional<ForcedToken> ForcedTokenOf(std::span<const uint32_t> words,
                                         const MaskVocabulary& vocabulary);

// One thread at a time.
class AnswerPath {
 public:
  explicit AnswerPath(std::unique_ptr<AnswerMatcher> matcher) : matcher_(std::move(matcher)) {}

  // The answer goes on with `taken`, behind what it was said to have before, and may with `ahead`
  // behind that, which is where this goes. MASK_FAILED.
  absl::Status GoTo(std::span<const uint32_t> taken, std::span<const uint32_t> ahead);
  // What may come here. Errors of AnswerMatcher.
  absl::StatusOr<AnswerMask> Next() { return matcher_->Next(); }
  // Goes one token on, which is of the set here, and gives the set behind it. Nothing, and goes
  // nowhere, where the answer would end with the token or be complete behind it, where no token
  // follows, and where it could not come back.
  std::optional<AnswerMask> TryNext(uint32_t token);

  const MaskVocabulary& vocabulary() const { return matcher_->vocabulary(); }

 private:
  struct Step {
    uint32_t token = 0;
    AnswerMatcher::Place before;
  };

  const std::unique_ptr<AnswerMatcher> matcher_;
  std::vector<Step> ahead_;  // That it has gone, behind the answer.
  absl::Status lost_;        // It could not come back.
};

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_ANSWER_PATH_H_
