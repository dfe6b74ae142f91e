#include "coordinator/prefix/prefix_cache.h"

#include <algorithm>

#include "common/check.h"

namespace strata {

PrefixCache::PrefixCache(Limits limits) : limits_(limits), coming_(limits.nodes) {}
PrefixCache::PrefixCache() : PrefixCache(Limits{}) {}

uint64_t PrefixCache::SequenceAtOrBelow(const Node* node) const {
  while (node->here.empty()) {
    ++steps_;
    node = node->first_child;  // There is one, with a sequence somewhere below.
  }
  return node->here.back();
}

std::vector<uint64_t> PrefixCache::Continuations(const PrefixKey& key, size_t most) const {
  std::vector<uint64_t> sequences;
  const Node* const node = tree_.Find(key);
  const Node* child = node == nullptr ? nullptr : node->first_child;
  for (; child != nullptr && sequences.size() < most; child = child->next) {
    ++steps_;
    sequences.push_back(SequenceAtOrBelow(child));
  }
  return sequences;
}

PrefixCache::Match PrefixCache::Find(std::span<const PrefixKey> keys) const {
  Match match;
  const Node* node = nullptr;
  for (const PrefixKey& key : keys) {
    ++steps_;
    const Node* next = tree_.Find(key);
    if (next == nullptr) {
      break;
    }
    node = next;
  }
  if (node != nullptr) {
    match.pages = node->pages;
    match.source = SequenceAtOrBelow(node);
  }
  match.coming = match.pages;
  while (match.coming < keys.size()) {
    ++steps_;
    const uint64_t publisher = coming_.PublisherOf(keys[match.coming]);
    if (publisher == 0 || (match.computing != 0 && publisher != match.computing)) {
      break;
    }
    match.computing = publisher;
    ++match.coming;
  }
  if (match.computing == 0) {
    match.coming = 0;
  }
  return match;
}

void PrefixCache::StandAt(uint64_t sequence, Node* node) {
  Sequence& entry = sequences_.at(sequence);
  entry.at = node;
  entry.place = node->here.size();
  node->here.push_back(sequence);
}

// Leaves its node without looking whether anything holds that any more.
void PrefixCache::Leave(const Sequence& entry) {
  std::vector<uint64_t>& here = entry.at->here;
  here[entry.place] = here.back();
  sequences_.at(here.back()).place = entry.place;
  here.pop_back();
}

void PrefixCache::SetUsed(Node* node, uint64_t used) {
  node->used = std::max(node->used, used);
  if (node->kept_here != 0) {
    Sequence& kept = sequences_.at(node->kept_here);
    recent_.erase({kept.used, node->kept_here});
    kept.used = node->used;
    recent_.emplace(kept.used, node->kept_here);
  }
}

// Removes the node and those above it that no sequence holds.
void PrefixCache::RemoveIfEmpty(Node* node) {
  while (node != nullptr && node->here.empty() && node->first_child == nullptr) {
    ++steps_;
    Node* const parent = node->parent;
    if (parent != nullptr) {
      SetUsed(parent, node->used);  // Who used a page used those before it.
    }
    tree_.Remove(node);
    node = parent;
  }
}

void PrefixCache::CountKept(Node* node, int change) {
  for (; node != nullptr; node = node->parent) {
    ++steps_;
    node->kept_below += static_cast<uint32_t>(change);
  }
}

void PrefixCache::Begin(uint64_t sequence, std::span<const PrefixKey> keys, uint32_t shared) {
  STRATA_CHECK(shared <= keys.size() && sequence != 0);
  const bool added = sequences_.try_emplace(sequence).second;
  STRATA_CHECK(added);
  if (shared > 0) {
    Node* node = tree_.Find(keys[shared - 1]);
    STRATA_CHECK(node != nullptr);
    SetUsed(node, ++clock_);
  }
  for (const PrefixKey& key : keys.subspan(shared)) {
    ++steps_;
    if (tree_.Find(key) == nullptr) {
      coming_.Announce(sequence, key);
    }
  }
}

void PrefixCache::Publish(uint64_t sequence, std::span<const PrefixKey> keys) {
  Sequence& entry = sequences_.at(sequence);
  STRATA_CHECK(!entry.kept);
  Node* const before = entry.at;
  Node* node = before;
  for (size_t i = node == nullptr ? 0 : node->pages; i < keys.size(); ++i) {
    ++steps_;
    Node* next = tree_.Find(keys[i]);
    if (next == nullptr && tree_.nodes() >= limits_.nodes) {
      break;
    }
    node = next == nullptr ? tree_.Add(node, keys[i]) : next;
    // Published is no longer coming, whoever was to bring it.
    coming_.Arrived(keys[i]);
    SetUsed(node, ++clock_);
  }
  if (node != before) {
    if (before != nullptr) {
      Leave(entry);
    }
    StandAt(sequence, node);
  }
}

void PrefixCache::Forget(uint64_t sequence) {
  const auto it = sequences_.find(sequence);
  Node* const node = it->second.at;
  steps_ += coming_.Withdraw(sequence);
  if (it->second.kept) {
    recent_.erase({it->second.used, sequence});
    node->kept_here = 0;
    CountKept(node, -1);
  }
  if (node != nullptr) {
    Leave(it->second);
    RemoveIfEmpty(node);
  }
  sequences_.erase(it);
}

void PrefixCache::Remove(uint64_t sequence) {
  if (Has(sequence)) {
    Forget(sequence);
  }
}

std::vector<PrefixCache::Cut> PrefixCache::Keep(uint64_t sequence) {
  Sequence& entry = sequences_.at(sequence);
  STRATA_CHECK(!entry.kept);
  steps_ += coming_.Withdraw(sequence);
  Node* const node = entry.at;
  std::vector<Cut> cuts;
  if (node == nullptr || node->kept_below > 0) {
    Forget(sequence);
    cuts.push_back({sequence, 0});
    return cuts;
  }
  // Those who end on the way here say nothing that this one does not. It stands below them, so
  // that no node of the way is removed.
  for (Node* above = node->parent; above != nullptr; above = above->parent) {
    ++steps_;
    if (const uint64_t covered = above->kept_here; covered != 0) {
      Forget(covered);
      cuts.push_back({covered, 0});
    }
  }
  entry.kept = true;
  entry.used = node->used;
  node->kept_here = sequence;
  recent_.emplace(entry.used, sequence);
  CountKept(node, 1);
  if (recent_.size() > limits_.kept) {
    const uint64_t oldest = LeastRecent();
    Forget(oldest);
    cuts.push_back({oldest, 0});
  }
  return cuts;
}

// False if the sequence was forgotten: nothing is left of it that others do not have.
bool PrefixCache::CutLastPage(uint64_t sequence) {
  Sequence& entry = sequences_.at(sequence);
  Node* const node = entry.at;
  Node* const parent = node->parent;
  // Its own count is 1 there; what more there is covers it.
  if (parent == nullptr || parent->kept_below > 1) {
    Forget(sequence);
    return false;
  }
  recent_.erase({entry.used, sequence});
  node->kept_here = 0;
  --node->kept_below;
  Leave(entry);
  StandAt(sequence, parent);
  parent->used = entry.used = std::max(parent->used, node->used);
  parent->kept_here = sequence;
  recent_.emplace(entry.used, sequence);
  RemoveIfEmpty(node);
  return true;
}

std::vector<PrefixCache::Cut> PrefixCache::Evict(uint64_t wanted, const ReturnsPage& returns_page) {
  std::unordered_map<uint64_t, uint32_t> cuts;  // What is left.
  const auto pages_of = [this, &cuts](uint64_t sequence) {
    const auto it = cuts.find(sequence);
    return it == cuts.end() ? PagesOf(sequence) : it->second;
  };
  uint64_t returned = 0;
  auto it = recent_.begin();
  while (returned < wanted && it != recent_.end()) {
    ++steps_;
    const auto [used, sequence] = *it;
    uint32_t left = pages_of(sequence);
    if (!returns_page(sequence, left - 1)) {
      ++it;  // Somebody computes on it.
      continue;
    }
    ++returned;
    const bool stays = CutLastPage(sequence);
    cuts[sequence] = --left;
    if (!stays) {
      // The rest goes with it, as far as it is its own.
      while (left > 0 && returns_page(sequence, left - 1)) {
        ++steps_;
        --left;
        ++returned;
      }
      cuts[sequence] = 0;
    }
    // Where the next one is: never before this one, those were looked at and give nothing.
    it = recent_.lower_bound({used, sequence});
  }
  std::vector<Cut> answer;
  answer.reserve(cuts.size());
  for (const auto& [sequence, pages] : cuts) {
    answer.push_back({sequence, pages});
  }
  std::sort(answer.begin(), answer.end(),
            [](const Cut& a, const Cut& b) { return a.sequence < b.sequence; });
  return answer;
}

void PrefixCache::Clear() {
  tree_.Clear();
  sequences_.clear();
  coming_.Clear();
  recent_.clear();
}

bool PrefixCache::IsKept(uint64_t sequence) const {
  const auto it = sequences_.find(sequence);
  return it != sequences_.end() && it->second.kept;
}

uint32_t PrefixCache::PagesOf(uint64_t sequence) const {
  const Node* node = sequences_.at(sequence).at;
  return node == nullptr ? 0 : node->pages;
}

}  // namespace strata
