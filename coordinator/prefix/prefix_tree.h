// The published prefixes of a prefix cache, by content: a radix tree with one node a page of
// tokens.
#ifndef STRATA_COORDINATOR_PREFIX_PREFIX_TREE_H_
#define STRATA_COORDINATOR_PREFIX_PREFIX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "coordinator/prefix/prefix_chain.h"

namespace strata {

struct PrefixKeyHash {
  size_t operator()(const PrefixKey& key) const;
};

struct PrefixNode {
  PrefixKey key;
  PrefixNode* parent = nullptr;  // Null at the first page.
  uint32_t pages = 0;            // Up to and with this one.
  // Children are a doubly linked list.
  PrefixNode* first_child = nullptr;
  PrefixNode* next = nullptr;
  PrefixNode* previous = nullptr;
  // The cache's:
  std::vector<uint64_t> here;  // Sequences that stand here.
  uint64_t kept_here = 0;      // The kept one of them; a second one would say nothing new.
  uint32_t kept_below = 0;     // Kept sequences here and below.
  uint64_t used = 0;
};

// Owns its nodes, which stay where they are until they are removed. One thread.
class PrefixTree {
 public:
  // The node of the prefix with this key; null: there is none.
  PrefixNode* Find(const PrefixKey& key) const;
  // The prefix of `parent` and one page more, which is not there yet. `parent` null: a first page.
  PrefixNode* Add(PrefixNode* parent, const PrefixKey& key);
  // A node without children, where no sequence stands.
  void Remove(PrefixNode* node);
  void Clear() { nodes_.clear(); }

  size_t nodes() const { return nodes_.size(); }

 private:
  std::unordered_map<PrefixKey, std::unique_ptr<PrefixNode>, PrefixKeyHash> nodes_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PREFIX_PREFIX_TREE_H_
