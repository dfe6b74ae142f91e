// Bytes of memory that many hold a part of, so that none can fill it for all others.
#ifndef STRATA_COMMON_BYTE_SHARES_H_
#define STRATA_COMMON_BYTE_SHARES_H_

#include <cstdint>
#include <map>
#include <string>

#include "common/mutex.h"

namespace strata {

// Any thread.
class ByteShares {
 public:
  explicit ByteShares(uint64_t most) : most_(most) {}

  // `owner` holds so many more from now on. False where there is no room: then nothing changes. Who
  // holds some already may hold no more than it leaves to others, so one alone half of all. "" is
  // everybody without a name, for whom only the whole is a limit.
  bool Take(const std::string& owner, uint64_t bytes);
  // Fewer, of those that it took.
  void Give(const std::string& owner, uint64_t bytes);

  uint64_t most() const { return most_; }
  uint64_t held() const;
  uint64_t HeldBy(const std::string& owner) const;

 private:
  const uint64_t most_;
  mutable Mutex mutex_;
  uint64_t held_ STRATA_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> owners_ STRATA_GUARDED_BY(mutex_);  // Who holds some.
};

}  // namespace strata

#endif  // STRATA_COMMON_BYTE_SHARES_H_
