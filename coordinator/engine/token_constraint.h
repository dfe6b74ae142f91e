// What a session's answer is held to, as the engine sees it: a set of tokens for each next one.
#ifndef STRATA_COORDINATOR_ENGINE_TOKEN_CONSTRAINT_H_
#define STRATA_COORDINATOR_ENGINE_TOKEN_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/token_mask_form.h"

namespace strata {

// The tokens that may come next. Immutable.
struct NextTokens {
  // One bit for each id of the vocabulary, the lowest bit of the first word being id 0. Empty: any
  // token may come.
  std::vector<uint32_t> bits;
  uint64_t digest = 0;  // TokenMaskDigest of the bits.
  // No token but those that end the answer may come: it ends here.
  bool complete = false;
};

// Whether it can be laid on the logits of a model of so many tokens.
inline bool IsOfVocabulary(const NextTokens& next, uint32_t vocab) {
  return next.bits.empty() || next.bits.size() == MaskWords(vocab);
}

// Why a token is taken to follow.
enum class DraftReason {
  kOnly,    // No other may come.
  kForced,  // All that may come begins with it, or is a part of its beginning.
  kGuess,   // Whoever asked guessed it.
};

// A token that may follow those before it, and the set behind it, which is not complete.
struct DraftedSet {
  uint32_t token = 0;
  DraftReason reason = DraftReason::kGuess;
  std::shared_ptr<const NextTokens> behind;
};

// Behind which tokens sets are of use.
struct DraftWish {
  std::vector<uint32_t> guesses =
      {};               // May follow the answer so far, and begin with those of Ahead().
  uint32_t most = 0;    // In all.
  bool forced = false;  // Behind tokens that the constraint forces, too.
};

// A pure function of the tokens that it was told of: equal ones have equal sets after them,
// whenever they are asked for. The engine tells it of every token that is committed, in order, and
// asks for the next set before that token's step. On the engine's thread; must not block, nor call
// the engine.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Null: not made yet. Then the session waits, and whoever makes it calls Engine::OnConstraint.
  virtual std::shared_ptr<const NextTokens> Next() = 0;
  // Why there will be no next set; the session fails with it. Ok otherwise.
  virtual absl::Status problem() const = 0;
  // The answer has one more token, which is of the newest set. The next one is there at once where
  // the token is the first of Ahead(); else it is made once it is asked for.
  virtual void Take(uint32_t token_id) = 0;
  // Has the next set made, unless it is there, and those behind tokens that may follow it, as many
  // as are made in little time: none at all is no error.
  virtual void Ask(const DraftWish& wish) = 0;
  // Tokens that may follow one another behind Next(), where that is there.
  virtual const std::vector<DraftedSet>& Ahead() const = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_TOKEN_CONSTRAINT_H_
