// How many drafted tokens a step has: a pure function of how likely they are right and of what rows
// cost.
#ifndef STRATA_COORDINATOR_ENGINE_DRAFT_LENGTH_H_
#define STRATA_COORDINATOR_ENGINE_DRAFT_LENGTH_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace strata {

// What drafts have to win at least: tokens a second, of all sessions of the step together.
inline constexpr double kLeastDraftGain = 1.03;
// What each of them keeps of its tokens a second at least, whoever the drafts are for; unless it
// has won more by drafts so far, or loses less than kMostLost in all, in steps without any.
inline constexpr double kLeastOfOwnPace = 0.98;
inline constexpr double kMostLost = 1;

// Of a session that has one token in the step.
struct DraftOffer {
  uint32_t most = 0;     // Tokens that are drafted for it.
  double chance = 0;     // That one of them is right, if those before it are; 0..1.
  double won = 0;        // Steps without drafts that they have won it by now; < 0: lost.
  uint32_t certain = 0;  // The first so many of them are right.
};

// For each offer how many of its tokens the step has, in all at most `most_rows`: such that all
// sessions together are expected to get the most tokens a second, and nobody is later for it than
// without, but for what kLeastOfOwnPace and kMostLost say. `cycle_ms`: until each session has its
// next step, with so many drafted rows in this one; where it is 0 without any, rows cost nothing.
// One call looks at few numbers of rows.
std::vector<uint32_t> DraftLengths(std::span<const DraftOffer> offers, uint32_t most_rows,
                                   const std::function<double(uint32_t)>& cycle_ms);

// How often drafts of one session turned out right: those of the newest steps count most, and with
// time it becomes uncertain again.
class DraftChance {
 public:
  // `prior`: what is assumed of it before anything is known.
  explicit DraftChance(double prior) : prior_(prior) {}

  // A step had `drafted` > 0 tokens, the first `accepted` of which were right.
  void Note(uint32_t drafted, uint32_t accepted);
  // A step had none.
  void Forget();
  double value() const;

 private:
  double prior_;
  double right_ = 0;
  double judged_ = 0;  // Those behind a wrong one are not.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_DRAFT_LENGTH_H_
