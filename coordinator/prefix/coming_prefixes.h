// The prefixes that live sequences are going to publish, so that who needs the same can wait for
// them.
#ifndef STRATA_COORDINATOR_PREFIX_COMING_PREFIXES_H_
#define STRATA_COORDINATOR_PREFIX_COMING_PREFIXES_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "coordinator/prefix/prefix_chain.h"
#include "coordinator/prefix/prefix_tree.h"

namespace strata {

// A prefix is coming from one sequence: the first that said so. One thread.
class ComingPrefixes {
 public:
  // `most`: prefixes at a time. What is announced beyond them is not known of.
  explicit ComingPrefixes(size_t most) : most_(most) {}

  // `sequence` is going to publish the prefix with this key.
  void Announce(uint64_t sequence, const PrefixKey& key);
  // Who is to publish it; 0: nobody.
  uint64_t PublisherOf(const PrefixKey& key) const;
  // Somebody published it.
  void Arrived(const PrefixKey& key) { publishers_.erase(key); }
  // The sequence publishes nothing more. How many prefixes it had announced: the work of the call.
  size_t Withdraw(uint64_t sequence);
  void Clear();

 private:
  const size_t most_;
  std::unordered_map<PrefixKey, uint64_t, PrefixKeyHash> publishers_;
  // By sequence: keys that it announced, and nobody else before.
  std::unordered_map<uint64_t, std::vector<PrefixKey>> announced_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PREFIX_COMING_PREFIXES_H_
