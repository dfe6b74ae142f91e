#include "coordinator/engine/recent_answers.h"

#include <algorithm>
#include <iterator>

namespace strata {
namespace {

// No token of a vocabulary.
constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kSlots = RecentAnswers::kBlockTokens;
static_assert(RecentAnswers::kBlockTokens <= UINT16_MAX);
// Tokens that a copy which goes on behind a change counts as.
constexpr uint32_t kOfAChange = 7;
// A block with less room is full.
constexpr size_t kLeastRoom = 64;

}  // namespace

void RecentAnswers::Add(const std::string& tenant, std::span<const uint32_t> answer) {
  if (!keeps() || answer.size() <= kLeastMatched) {
    return;
  }
  answer = answer.last(std::min(answer.size(), kMostOfAnswer));
  while (true) {
    Block& block = BlockFor(tenant, std::min(answer.size() + 1, kLeastRoom));
    const size_t room = kBlockTokens - block.tokens.size() - 1;
    const size_t part = std::min(room, answer.size());
    Append(answer.first(part), &block);
    if (part == answer.size()) {
      return;
    }
    answer = answer.subspan(part - kLeastMatched);  // So that each place is in one block.
  }
}

RecentAnswers::Block& RecentAnswers::BlockFor(const std::string& tenant, size_t room) {
  std::deque<Blocks::iterator>& own = by_tenant_[tenant];
  if (!own.empty() && own.back()->tokens.size() + room <= kBlockTokens) {
    blocks_.splice(blocks_.end(), blocks_, own.back());
    return *own.back();
  }
  if (own.size() >= kMostBlocks) {
    Drop(own.front());
  } else if (blocks_.size() >= most_blocks_) {
    Drop(blocks_.begin());
  }
  Block& block = blocks_.emplace_back();
  block.number = ++numbers_;
  block.tenant = tenant;
  block.tokens.reserve(kBlockTokens);
  block.slots.resize(kSlots);
  by_tenant_[tenant].push_back(std::prev(blocks_.end()));
  return block;
}

void RecentAnswers::Drop(Blocks::iterator block) {
  const auto of = by_tenant_.find(block->tenant);
  std::erase(of->second, block);
  if (of->second.empty()) {
    by_tenant_.erase(of);
  }
  blocks_.erase(block);
}

void RecentAnswers::Append(std::span<const uint32_t> tokens, Block* block) {
  const auto begin = static_cast<uint32_t>(block->tokens.size());
  block->tokens.insert(block->tokens.end(), tokens.begin(), tokens.end());
  const auto end = static_cast<uint32_t>(block->tokens.size());
  for (uint32_t place = begin + kLeastMatched; place < end; ++place) {
    std::array<uint16_t, 4>& slot = block->slots[PlaceHash(block->tokens, place) % kSlots];
    std::rotate(slot.begin(), slot.end() - 1, slot.end());
    slot.front() = static_cast<uint16_t>(place);
  }
  block->tokens.push_back(kNone);
}

Draft RecentAnswers::Find(const std::string& tenant, const DraftContext& context, uint32_t most,
                          Place* place) {
  const Place last = *place;
  *place = {};
  const auto own = by_tenant_.find(tenant);
  if (own == by_tenant_.end() || context.size() < kLeastMatched) {
    return {};
  }
  Draft draft;
  draft.source = DraftSource::kRecentAnswer;
  draft.matched = kLeastMatched - 1;
  const Blocks::iterator* found = nullptr;
  const auto consider = [&](const Blocks::iterator& block, uint32_t end) {
    if (end == 0 || end >= block->tokens.size() || block->tokens[end] == kNone) {
      return;
    }
    if (const uint32_t here = Matched(block->tokens, end, context); here > draft.matched) {
      draft.matched = here;
      found = &block;
      *place = {block->number, end};
    }
  };
  for (const Blocks::iterator& block : own->second) {
    if (block->number == last.block) {
      consider(block, last.end);
    }
  }
  const uint64_t slot = PlaceHash(context, context.size()) % kSlots;
  for (auto block = own->second.rbegin(); block != own->second.rend(); ++block) {
    for (const uint32_t end : (*block)->slots[slot]) {
      consider(*block, end);
    }
  }
  if (found == nullptr) {
    return {};
  }
  const std::vector<uint32_t>& tokens = (*found)->tokens;
  for (uint32_t i = place->end; draft.tokens.size() < most && tokens[i] != kNone; ++i) {
    draft.tokens.push_back(tokens[i]);
  }
  blocks_.splice(blocks_.end(), blocks_, *found);
  return draft;
}

Draft RecentDrafter::Next(std::span<const uint32_t> tokens, uint32_t most) {
  return Better(own_->Next(tokens, most), {tokens}, most);
}

Draft RecentDrafter::Behind(std::span<const uint32_t> tokens, std::span<const uint32_t> ahead,
                            uint32_t most) {
  return Better(own_->Behind(tokens, ahead, most), {tokens, ahead}, most);
}

Draft RecentDrafter::Better(Draft own, const DraftContext& context, uint32_t most) {
  if (own.matched >= kMostMatched) {
    return own;
  }
  place_.end += context.size() - std::min(size_, context.size());
  size_ = context.size();
  Draft recent = recent_->Find(tenant_, context, most, &place_);
  const bool behind_change = own.matched == 0 && !own.tokens.empty();
  return recent.matched > (behind_change ? kOfAChange : own.matched) ? recent : own;
}

}  // namespace strata
