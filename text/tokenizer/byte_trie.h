// A set of texts as a tree of bytes. Const after construction; any thread.
#ifndef STRATA_TEXT_TOKENIZER_BYTE_TRIE_H_
#define STRATA_TEXT_TOKENIZER_BYTE_TRIE_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace strata {

class ByteTrie {
 public:
  // A text that is there already keeps its value; an empty one is left out.
  void Add(std::string_view text, uint32_t value) {
    if (text.empty()) {
      return;
    }
    begins_[static_cast<uint8_t>(text[0])] = true;
    Child* child = nullptr;
    uint32_t node = 0;
    for (const char byte : text) {
      const auto [entry, added] = children_.try_emplace(Edge(node, byte), Child{nodes_, kNone});
      nodes_ += added ? 1 : 0;
      child = &entry->second;
      node = child->node;
    }
    if (child->value == kNone) {
      child->value = value;
    }
  }

  // Calls visit(length, value) for each text that `text` has at `at`, from the shortest.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, size_t at, Visit visit) const {
    if (!begins_[static_cast<uint8_t>(text[at])]) {
      return;
    }
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      const auto child = children_.find(Edge(node, text[i]));
      if (child == children_.end()) {
        return;
      }
      node = child->second.node;
      if (child->second.value != kNone) {
        visit(i + 1 - at, child->second.value);
      }
    }
  }

  // The value and length of the longest text that `text` has at `at`.
  std::optional<std::pair<uint32_t, size_t>> Longest(std::string_view text, size_t at) const {
    std::optional<std::pair<uint32_t, size_t>> longest;
    ForEachPrefix(text, at, [&longest](size_t length, uint32_t value) {
      longest = {value, length};
    });
    return longest;
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Child {
    uint32_t node = 0;
    uint32_t value = kNone;  // Of the text that ends here.
  };
  static uint64_t Edge(uint32_t node, char byte) {
    return (uint64_t{node} << 8) | static_cast<uint8_t>(byte);
  }

  bool begins_[256] = {};                          // Whether a text begins with a byte.
  absl::flat_hash_map<uint64_t, Child> children_;  // Node 0 is the root.
  uint32_t nodes_ = 1;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_BYTE_TRIE_H_
