#include "coordinator/engine/copy_follower.h"

#include <algorithm>

namespace strata {

void CopyFollower::Begin(uint32_t distance, uint32_t size, uint32_t matched) {
  distance_ = distance;
  followed_ = size;
  before_ = changed_ = 0;
  matched_ = matched;
}

void CopyFollower::Follow(std::span<const uint32_t> tokens) {
  const auto size = static_cast<uint32_t>(tokens.size());
  for (; distance_ > 0 && followed_ < size; ++followed_) {
    const uint32_t old_token = tokens[followed_ - distance_];
    const uint32_t new_token = tokens[followed_];
    if (old_token == new_token) {
      Forget(old_token);
    }
    if (Became(old_token) != new_token) {
      // What matched between two changes is not enough to tell them apart.
      before_ = changed_ == 0 ? matched_ : before_;
      changed_ += changed_ == 0 ? 1 : matched_ + 1;
      matched_ = 0;
      continue;
    }
    ++matched_;
    if (changed_ == 0 || matched_ < kLeastBehind) {
      continue;
    }
    if (may_go_on()) {
      const uint32_t end = followed_ + 1 - matched_;
      for (uint32_t i = end - changed_; i < end; ++i) {
        Remember(tokens[i - distance_], tokens[i]);
      }
      matched_ += before_;
    }
    before_ = changed_ = 0;
  }
}

uint32_t CopyFollower::Became(uint32_t token) const {
  const auto found = std::find_if(changes_.begin(), changes_.end(),
                                  [token](const auto& change) { return change.first == token; });
  return found == changes_.end() ? token : found->second;
}

void CopyFollower::Remember(uint32_t old_token, uint32_t new_token) {
  if (old_token == new_token) {
    return;
  }
  Forget(old_token);
  if (changes_.size() == kMostChanges) {
    changes_.erase(changes_.begin());
  }
  changes_.emplace_back(old_token, new_token);
}

void CopyFollower::Forget(uint32_t old_token) {
  std::erase_if(changes_, [old_token](const auto& change) { return change.first == old_token; });
}

}  // namespace strata
