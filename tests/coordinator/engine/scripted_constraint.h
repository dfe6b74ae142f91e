// A constraint whose sets are a hash of the answer's tokens, so that one token too early, too late
// or lost is a set that is wrong.
#ifndef STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_CONSTRAINT_H_
#define STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/fingerprint.h"
#include "common/token_mask_form.h"
#include "coordinator/engine/token_constraint.h"

namespace strata {

struct ConstraintScript {
  uint32_t vocab = 97;
  uint64_t salt = 1;
  // One in so many tokens may come.
  uint32_t one_in = 5;
  // Complete with so many tokens.
  uint32_t tokens = 1000;
  // Sets after more tokens recur: they are those of the length modulo this; 0: they do not.
  uint32_t recur = 0;
};

inline std::shared_ptr<const NextTokens> ScriptedNext(const ConstraintScript& script,
                                                      const std::vector<uint32_t>& answer) {
  uint64_t state = script.salt;
  if (script.recur > 0) {
    state = Mix64(state + answer.size() % script.recur);
  } else {
    for (const uint32_t id : answer) {
      state = FingerprintLink(state, id);
    }
  }
  auto next = std::make_shared<NextTokens>();
  next->complete = answer.size() >= script.tokens;
  next->bits.assign(MaskWords(script.vocab), 0);
  const auto always = static_cast<uint32_t>(state % script.vocab);
  for (uint32_t id = 0; id < script.vocab; ++id) {
    if (id == always || Mix64(state + id) % script.one_in == 0) {
      next->bits[id / 32] |= uint32_t{1} << (id % 32);
    }
  }
  next->digest = TokenMaskDigest(next->bits);
  return next;
}

class ScriptedConstraint : public TokenConstraint {
 public:
  explicit ScriptedConstraint(const ConstraintScript& script, bool at_once = true)
      : script_(script), at_once_(at_once), next_(ScriptedNext(script, {})) {}

  std::shared_ptr<const NextTokens> Next() override { return next_; }
  absl::Status problem() const override { return problem_; }
  void Take(uint32_t token_id) override {
    answer_.push_back(token_id);
    next_ = at_once_ ? ScriptedNext(script_, answer_) : nullptr;
  }

  // Of one that does not make its sets at once.
  void Make() { next_ = ScriptedNext(script_, answer_); }
  void Break(absl::Status problem) { problem_ = std::move(problem); }
  const std::vector<uint32_t>& answer() const { return answer_; }

 private:
  const ConstraintScript script_;
  const bool at_once_;
  std::vector<uint32_t> answer_;
  std::shared_ptr<const NextTokens> next_;
  absl::Status problem_;
};

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_CONSTRAINT_H_
