#include "coordinator/prefix/prefix_tree.h"

#include <cstring>
#include <utility>

#include "common/check.h"

namespace strata {

size_t PrefixKeyHash::operator()(const PrefixKey& key) const {
  size_t hash = 0;
  std::memcpy(&hash, key.data(), sizeof(hash));
  return hash;
}

PrefixNode* PrefixTree::Find(const PrefixKey& key) const {
  const auto it = nodes_.find(key);
  return it == nodes_.end() ? nullptr : it->second.get();
}

PrefixNode* PrefixTree::Add(PrefixNode* parent, const PrefixKey& key) {
  auto owned = std::make_unique<PrefixNode>();
  PrefixNode* node = owned.get();
  node->key = key;
  node->parent = parent;
  node->pages = parent == nullptr ? 1 : parent->pages + 1;
  if (parent != nullptr) {
    node->next = parent->first_child;
    if (node->next != nullptr) {
      node->next->previous = node;
    }
    parent->first_child = node;
  }
  nodes_.emplace(key, std::move(owned));
  return node;
}

void PrefixTree::Remove(PrefixNode* node) {
  STRATA_CHECK(node->here.empty() && node->first_child == nullptr);
  if (node->previous != nullptr) {
    node->previous->next = node->next;
  } else if (node->parent != nullptr) {
    node->parent->first_child = node->next;
  }
  if (node->next != nullptr) {
    node->next->previous = node->previous;
  }
  nodes_.erase(PrefixKey(node->key));
}

}  // namespace strata
