#include "coordinator/engine/session_drafts.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

// So many tokens alike speak for a draft as much as more do.
constexpr uint32_t kManyMatched = 8;
// Steps that count as won: what was won long ago is not taken from a session now.
constexpr double kMostWon = 4;
// A guess that is less likely to be of use is not worth the making of its set.
constexpr double kLeastOfASet = 0.1;

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
    next_ = {.tokens = std::move(tokens), .source = DraftSource::kModel};
    guessed_ = true;
  }
}

bool SessionDrafts::strong() const {
  return !next_.tokens.empty() && next_.matched >= kManyMatched;
}

DraftWish SessionDrafts::Wish(std::span<const uint32_t> tokens, uint32_t most) {
  DraftWish wish;
  if (!any() || tokens.size() == known_) {
    return wish;
  }
  known_ = tokens.size();
  most_ = std::min(most, kMostDrafts);
  next_ = most_ == 0 || drafter_ == nullptr ? Draft() : drafter_->Next(tokens, most_);
  guesses_ = std::exchange(next_.tokens, {});
  Hold({});
  wished_behind_ = false;
  guesses_.resize(std::min(guesses_.size(), WorthASet()));
  wish.guesses = guesses_;
  wish.forced = forced_;
  wish.most = forced_ ? most_ : static_cast<uint32_t>(guesses_.size());
  return wish;
}

void SessionDrafts::Hold(const std::vector<DraftedSet>& ahead) {
  next_.tokens.clear();
  sets_.clear();
  forced_drafts_.clear();
  certain_ = 0;
  begins_forced_ = false;
  for (const DraftedSet& drafted : ahead) {
    if (!any() || sets_.size() == most_) {
      break;
    }
    if (certain_ == sets_.size()) {
      certain_ += drafted.reason == DraftReason::kOnly ? 1 : 0;
      begins_forced_ = drafted.reason == DraftReason::kForced;
    }
    next_.tokens.push_back(drafted.token);
    sets_.push_back(drafted.behind);
    forced_drafts_.push_back(drafted.reason != DraftReason::kGuess);
  }
}

std::optional<DraftWish> SessionDrafts::WishBehind(std::span<const uint32_t> tokens) {
  const std::vector<uint32_t>& next = next_.tokens;
  const bool guessed =
      next.size() <= guesses_.size() && std::equal(next.begin(), next.end(), guesses_.begin());
  if (guessed || wished_behind_ || drafter_ == nullptr || next.size() >= most_) {
    return std::nullopt;
  }
  wished_behind_ = true;
  Draft more = drafter_->Behind(tokens, next, most_ - static_cast<uint32_t>(next.size()));
  next_.matched = more.matched;
  next_.source = more.source;
  more.tokens.resize(std::min(more.tokens.size(), WorthASet()));
  if (more.tokens.empty()) {
    return std::nullopt;
  }
  guesses_ = next;
  guesses_.insert(guesses_.end(), more.tokens.begin(), more.tokens.end());
  return DraftWish{guesses_, most_, forced_};
}

void SessionDrafts::Stop() {
  drafter_.reset();
  forced_ = false;
  Hold({});
}

void SessionDrafts::Note(uint32_t drafted, uint32_t right, double slowdown) {
  won_ = std::min(kMostWon, won_ + right + 1 - slowdown);
  drafted_ += drafted;
  DraftChance& chance = chances_[Class()];
  if (drafted > certain_) {
    chance.Note(drafted - certain_, std::max(right, certain_) - certain_);
  } else if (drafted == 0 && !next_.tokens.empty()) {
    chance.Forget();
  }
}

size_t SessionDrafts::Class() const {
  return guessed_ ? kGuessed : begins_forced_ ? kForced : MatchedClass();
}

size_t SessionDrafts::MatchedClass() const {
  return next_.matched == 0 ? kBehindChange : next_.matched >= kManyMatched ? 1 : 0;
}

size_t SessionDrafts::WorthASet() const {
  const double chance = chances_[MatchedClass()].value();
  size_t count = 0;
  for (double all = chance; all >= kLeastOfASet && count < kMostDrafts; all *= chance) {
    ++count;
  }
  return count;
}

}  // namespace strata
