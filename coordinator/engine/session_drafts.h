// Drafts of one session: what its next step may carry, and what became of those before.
#ifndef STRATA_COORDINATOR_ENGINE_SESSION_DRAFTS_H_
#define STRATA_COORDINATOR_ENGINE_SESSION_DRAFTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/engine/draft_length.h"
#include "coordinator/engine/drafter.h"

namespace strata {

// One thread.
class SessionDrafts {
 public:
  // No drafter: there are never any.
  explicit SessionDrafts(std::unique_ptr<Drafter> drafter = nullptr)
      : drafter_(std::move(drafter)) {}

  // `tokens` are all that are known, at most `most` more are of use. Nothing happens unless there
  // are others than the last time.
  void Refresh(std::span<const uint32_t> tokens, uint32_t most);
  // What a draft model says may follow the tokens of the newest Refresh.
  void Guess(std::vector<uint32_t> tokens);
  // None any more: a step with some failed.
  void Stop();

  // What may follow the tokens of the newest Refresh.
  const std::vector<uint32_t>& next() const { return next_.tokens; }
  // That one of them is right, if those before it are.
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
  // Drafts for which few tokens speak, others, those behind a change, and a draft model's.
  static constexpr size_t kBehindChange = 2;
  static constexpr size_t kGuessed = 3;
  size_t Class() const;

  std::unique_ptr<Drafter> drafter_;
  Draft next_;
  size_t known_ = 0;      // Tokens of the newest Refresh.
  bool guessed_ = false;  // By a draft model.
  std::array<DraftChance, 4> chances_{DraftChance(0.3), DraftChance(0.8), DraftChance(0.5),
                                      DraftChance(0.6)};
  double won_ = 0;
  uint32_t drafted_ = 0;
  uint32_t accepted_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SESSION_DRAFTS_H_
