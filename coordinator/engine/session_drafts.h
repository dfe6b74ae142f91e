// Drafts of one session: what its next step may carry, and what became of those before.
#ifndef STRATA_COORDINATOR_ENGINE_SESSION_DRAFTS_H_
#define STRATA_COORDINATOR_ENGINE_SESSION_DRAFTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/engine/draft_length.h"
#include "coordinator/engine/drafter.h"
#include "coordinator/engine/token_constraint.h"

namespace strata {

// One thread.
class SessionDrafts {
 public:
  // Neither: there are never any. `forced`: what the session's constraint forces is drafted.
  explicit SessionDrafts(std::unique_ptr<Drafter> drafter = nullptr, bool forced = false)
      : drafter_(std::move(drafter)), forced_(forced) {}

  // Of a session without a constraint. `tokens` are all that are known, at most `most` more are of
  // use. Nothing happens unless there are others than the last time.
  void Refresh(std::span<const uint32_t> tokens, uint32_t most);
  // What a draft model says may follow the tokens of the newest Refresh.
  void Guess(std::vector<uint32_t> tokens);
  // Of one that has a constraint: what that is to be asked for. There are no drafts until Hold.
  DraftWish Wish(std::span<const uint32_t> tokens, uint32_t most);
  // What the constraint says may follow.
  void Hold(const std::vector<DraftedSet>& ahead);
  // What else to ask it for: behind what it forces, where that is not what was guessed. Once for
  // the tokens of the newest Wish.
  std::optional<DraftWish> WishBehind(std::span<const uint32_t> tokens);
  // Whether there may be some.
  bool any() const { return drafter_ != nullptr || forced_; }
  // None any more: a step with some failed.
  void Stop();

  // What may follow the tokens of the newest Refresh or Wish.
  const std::vector<uint32_t>& next() const { return next_.tokens; }
  // With a constraint: the set behind each of them.
  const std::vector<std::shared_ptr<const NextTokens>>& sets() const { return sets_; }
  // Where each of them is from.
  DraftSource SourceOf(size_t draft) const {
    return draft < forced_drafts_.size() && forced_drafts_[draft] ? DraftSource::kConstraint
                                                                  : next_.source;
  }
  // The first so many of them are right.
  uint32_t certain() const { return certain_; }
  // That one of the others is right, if those before it are.
  double chance() const { return chances_[Class()].value(); }
  // Many tokens speak for them.
  bool strong() const;
  // As chance(), of what a draft model says.
  double guess_chance() const { return chances_[kGuessed].value(); }
  // A step with the first `drafted` of them, which may be 0, had the first `right` right, and took
  // `slowdown` times as long as it would have without anybody's. Before the next Refresh.
  void Note(uint32_t drafted, uint32_t right, double slowdown = 1);
  // Rows of a step that was sent ahead of a result, and came to nothing.
  void NoteVoid(uint32_t rows) { drafted_ += rows; }
  // See DraftOffer::won.
  double won() const { return won_; }
  // One that was right is the answer's.
  void Accept() { ++accepted_; }

  // Of all steps: tokens that were computed, and those of them that the answer has.
  uint32_t drafted() const { return drafted_; }
  uint32_t accepted() const { return accepted_; }

 private:
  // Drafts for which few tokens speak, others, those behind a change, a draft model's, and those
  // that a constraint forces.
  static constexpr size_t kBehindChange = 2;
  static constexpr size_t kGuessed = 3;
  static constexpr size_t kForced = 4;
  size_t MatchedClass() const;
  size_t Class() const;
  // So many of the guessed tokens are worth a set.
  size_t WorthASet() const;

  std::unique_ptr<Drafter> drafter_;
  bool forced_;
  Draft next_;
  std::vector<uint32_t> guesses_;  // That the constraint was asked for.
  std::vector<std::shared_ptr<const NextTokens>> sets_;
  std::vector<bool> forced_drafts_;  // With a constraint: which of them that said.
  uint32_t certain_ = 0;
  bool begins_forced_ = false;  // The others do.
  bool wished_behind_ = false;
  bool guessed_ = false;  // By a draft model.
  size_t known_ = 0;      // Tokens of the newest Refresh or Wish,
  uint32_t most_ = 0;     // and most drafts.
  std::array<DraftChance, 5> chances_{DraftChance(0.3), DraftChance(0.8), DraftChance(0.5),
                                      DraftChance(0.6), DraftChance(0.8)};
  double won_ = 0;
  uint32_t drafted_ = 0;
  uint32_t accepted_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SESSION_DRAFTS_H_
