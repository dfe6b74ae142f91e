#include "coordinator/engine/session_drafts.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

// So many tokens alike speak for a draft as much as more do.
constexpr uint32_t kManyMatched = 8;
// Steps that count as won: what was won long ago is not taken from a session now.
constexpr double kMostWon = 4;

}  // namespace

void SessionDrafts::Refresh(std::span<const uint32_t> tokens, uint32_t most) {
  if (drafter_ == nullptr || tokens.size() == known_) {
    return;
  }
  known_ = tokens.size();
  guessed_ = false;
  next_ = most == 0 ? Draft() : drafter_->Next(tokens, std::min(most, kMostGuesses));
}

void SessionDrafts::Guess(std::vector<uint32_t> tokens) {
  if (drafter_ != nullptr) {
    next_ = {.tokens = std::move(tokens)};
    guessed_ = true;
  }
}

bool SessionDrafts::strong() const {
  return !next_.tokens.empty() && next_.matched >= kManyMatched;
}

void SessionDrafts::Stop() {
  drafter_.reset();
  next_ = {};
}

void SessionDrafts::Note(uint32_t drafted, uint32_t right, double slowdown) {
  won_ = std::min(kMostWon, won_ + right + 1 - slowdown);
  drafted_ += drafted;
  DraftChance& chance = chances_[Class()];
  if (drafted > 0) {
    chance.Note(drafted, right);
  } else if (!next_.tokens.empty()) {
    chance.Forget();
  }
}

size_t SessionDrafts::Class() const {
  return guessed_                        ? kGuessed
         : next_.matched == 0            ? kBehindChange
         : next_.matched >= kManyMatched ? 1
                                         : 0;
}

}  // namespace strata
