// A constraint whose sets are a hash of the answer's tokens, so that one token too early, too late
// or lost is a set that is wrong.
#ifndef STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_CONSTRAINT_H_
#define STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_CONSTRAINT_H_

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
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
    if (!ahead_.empty() && ahead_.front().token == token_id) {
      next_ = ahead_.front().behind;
      ahead_.erase(ahead_.begin());
      return;
    }
    ahead_.clear();
    next_ = at_once_ ? ScriptedNext(script_, answer_) : nullptr;
  }
  void Ask(const DraftWish& wish) override {
    wish_ = wish;
    if (at_once_) {
      MakeAhead();
    } else if (wish.most > ahead_.size()) {
      next_ = nullptr;
    }
  }
  const std::vector<DraftedSet>& Ahead() const override { return ahead_; }

  // Of one that does not make its sets at once.
  void Make() {
    next_ = ScriptedNext(script_, answer_);
    MakeAhead();
  }
  void Break(absl::Status problem) { problem_ = std::move(problem); }
  const std::vector<uint32_t>& answer() const { return answer_; }

 private:
  void MakeAhead() {
    std::vector<uint32_t> tokens = answer_;
    bool guessed = ahead_.size() <= wish_.guesses.size();
    for (size_t i = 0; i < ahead_.size(); ++i) {
      guessed = guessed && ahead_[i].token == wish_.guesses[i];
      tokens.push_back(ahead_[i].token);
    }
    while (ahead_.size() < wish_.most) {
      const NextTokens& here = ahead_.empty() ? *next_ : *ahead_.back().behind;
      const std::optional<uint32_t> only = wish_.forced ? OnlyOf(here) : std::nullopt;
      const bool has_guess = guessed && ahead_.size() < wish_.guesses.size();
      if (!only.has_value() && !(has_guess && MaskHas(here.bits, wish_.guesses[ahead_.size()]))) {
        return;
      }
      const uint32_t token = only.value_or(has_guess ? wish_.guesses[ahead_.size()] : 0);
      guessed = has_guess && token == wish_.guesses[ahead_.size()];
      tokens.push_back(token);
      auto behind = ScriptedNext(script_, tokens);
      if (behind->complete) {
        return;
      }
      ahead_.push_back(
          {token, only.has_value() ? DraftReason::kOnly : DraftReason::kGuess, std::move(behind)});
    }
  }
  static std::optional<uint32_t> OnlyOf(const NextTokens& next) {
    std::optional<uint32_t> only;
    for (size_t i = 0; i < next.bits.size(); ++i) {
      if (next.bits[i] != 0) {
        if (only.has_value() || std::popcount(next.bits[i]) != 1) {
          return std::nullopt;
        }
        only = static_cast<uint32_t>(i * 32 + static_cast<size_t>(std::countr_zero(next.bits[i])));
      }
    }
    return only;
  }

  const ConstraintScript script_;
  const bool at_once_;
  std::vector<uint32_t> answer_;
  std::shared_ptr<const NextTokens> next_;
  DraftWish wish_;
  std::vector<DraftedSet> ahead_;
  absl::Status problem_;
};

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_CONSTRAINT_H_
