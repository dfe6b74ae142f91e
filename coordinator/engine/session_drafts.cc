#include "coordinator/engine/session_drafts.h"

#include <algorithm>

namespace strata {
namespace {

// So many tokens alike speak for a draft as much as more do.
constexpr uint32_t kManyMatched = 8;

}  // namespace

void SessionDrafts::Refresh(std::span<const uint32_t> tokens, uint32_t most) {
  if (drafter_ == nullptr || tokens.size() == known_) {
    return;
  }
  known_ = tokens.size();
  next_ = most == 0 ? Draft() : drafter_->Next(tokens, std::min(most, kMostGuesses));
}

void SessionDrafts::Stop() {
  drafter_.reset();
  next_ = {};
}

void SessionDrafts::Note(uint32_t drafted, uint32_t right) {
  drafted_ += drafted;
  DraftChance& chance = chances_[Class()];
  if (drafted > 0) {
    chance.Note(drafted, right);
  } else {
    chance.Forget();
  }
}

size_t SessionDrafts::Class() const { return next_.matched >= kManyMatched ? 1 : 0; }

}  // namespace strata
