#include "coordinator/prefix/coming_prefixes.h"

namespace strata {

void ComingPrefixes::Announce(uint64_t sequence, const PrefixKey& key) {
  if (publishers_.size() < most_ && publishers_.try_emplace(key, sequence).second) {
    announced_[sequence].push_back(key);
  }
}

uint64_t ComingPrefixes::PublisherOf(const PrefixKey& key) const {
  const auto it = publishers_.find(key);
  return it == publishers_.end() ? 0 : it->second;
}

size_t ComingPrefixes::Withdraw(uint64_t sequence) {
  const auto announced = announced_.find(sequence);
  if (announced == announced_.end()) {
    return 0;
  }
  for (const PrefixKey& key : announced->second) {
    const auto it = publishers_.find(key);
    if (it != publishers_.end() && it->second == sequence) {
      publishers_.erase(it);
    }
  }
  const size_t keys = announced->second.size();
  announced_.erase(announced);
  return keys;
}

void ComingPrefixes::Clear() {
  publishers_.clear();
  announced_.clear();
}

}  // namespace strata
