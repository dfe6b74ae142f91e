#include "common/byte_shares.h"

#include "common/check.h"

namespace strata {

bool ByteShares::Take(const std::string& owner, uint64_t bytes) {
  MutexLock lock(&mutex_);
  if (held_ > most_ || bytes > most_ - held_) {
    return false;
  }
  const uint64_t left = most_ - held_ - bytes;
  const auto mine = owners_.find(owner);
  if (!owner.empty() && mine != owners_.end() && mine->second + bytes > left) {
    return false;
  }
  held_ += bytes;
  if (bytes > 0) owners_[owner] += bytes;
  return true;
}

void ByteShares::Give(const std::string& owner, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  MutexLock lock(&mutex_);
  const auto mine = owners_.find(owner);
  STRATA_CHECK(mine != owners_.end() && mine->second >= bytes);
  held_ -= bytes;
  mine->second -= bytes;
  if (mine->second == 0) owners_.erase(mine);
}

uint64_t ByteShares::held() const {
  MutexLock lock(&mutex_);
  return held_;
}

uint64_t ByteShares::HeldBy(const std::string& owner) const {
  MutexLock lock(&mutex_);
  const auto mine = owners_.find(owner);
  return mine == owners_.end() ? 0 : mine->second;
}

}  // namespace strata
