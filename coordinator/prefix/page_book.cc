#include "coordinator/prefix/page_book.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace strata {

// The use that a page counts for; kPageUses: nobody holds it.
size_t PageBook::Counted(const Holders& holders) {
  size_t use = 0;
  while (use < kPageUses && holders[use] == 0) {
    ++use;
  }
  return use;
}

void PageBook::Hold(Page page, PageUse use) {
  Holders& holders = holders_[page];
  const size_t before = Counted(holders);
  ++holders[static_cast<size_t>(use)];
  if (before < kPageUses) {
    --pages_[before];
  }
  ++pages_[Counted(holders)];
}

void PageBook::Leave(Page page, PageUse use) {
  Holders& holders = holders_[page];
  --pages_[Counted(holders)];
  --holders[static_cast<size_t>(use)];
  const size_t after = Counted(holders);
  if (after < kPageUses) {
    ++pages_[after];
  } else {
    unused_.push_back(page);
  }
}

PageBook::Page PageBook::NewPage() {
  if (unused_.empty()) {
    holders_.push_back({});
    return static_cast<Page>(holders_.size() - 1);
  }
  const Page page = unused_.back();
  unused_.pop_back();
  return page;
}

void PageBook::Add(uint64_t sequence, PageUse use) {
  const bool added = sequences_.try_emplace(sequence, Sequence{use, {}}).second;
  STRATA_CHECK(added);
}

void PageBook::Resize(uint64_t sequence, uint32_t pages) {
  Sequence& entry = sequences_.at(sequence);
  while (entry.pages.size() > pages) {
    Leave(entry.pages.back(), entry.use);
    entry.pages.pop_back();
  }
  while (entry.pages.size() < pages) {
    entry.pages.push_back(NewPage());
    Hold(entry.pages.back(), entry.use);
  }
}

void PageBook::Share(uint64_t from, uint64_t to, uint32_t pages) {
  const Sequence& source = sequences_.at(from);
  Sequence& destination = sequences_.at(to);
  STRATA_CHECK(destination.pages.empty() && pages <= source.pages.size());
  destination.pages.assign(source.pages.begin(), source.pages.begin() + pages);
  for (const Page page : destination.pages) {
    Hold(page, destination.use);
  }
}

void PageBook::Unshare(uint64_t sequence, uint32_t index) {
  Sequence& entry = sequences_.at(sequence);
  if (index < entry.pages.size() && Count(holders_[entry.pages[index]]) > 1) {
    Leave(entry.pages[index], entry.use);
    entry.pages[index] = NewPage();
    Hold(entry.pages[index], entry.use);
  }
}

void PageBook::Split(uint64_t sequence, uint32_t keep, uint64_t tail) {
  Add(tail, use(sequence));
  std::vector<Page>& from = sequences_.at(sequence).pages;
  STRATA_CHECK(keep <= from.size());
  sequences_.at(tail).pages.assign(from.begin() + keep, from.end());
  from.resize(keep);
}

void PageBook::SetUse(uint64_t sequence, PageUse use) {
  Sequence& entry = sequences_.at(sequence);
  const PageUse before = std::exchange(entry.use, use);
  for (const Page page : entry.pages) {
    Hold(page, use);
    Leave(page, before);
  }
}

void PageBook::Drop(uint64_t sequence) {
  Resize(sequence, 0);
  sequences_.erase(sequence);
}

uint32_t PageBook::size(uint64_t sequence) const {
  return static_cast<uint32_t>(sequences_.at(sequence).pages.size());
}

PageUse PageBook::use(uint64_t sequence) const { return sequences_.at(sequence).use; }

uint32_t PageBook::SolePages(uint64_t sequence) const {
  const std::vector<Page>& pages = sequences_.at(sequence).pages;
  return static_cast<uint32_t>(std::count_if(
      pages.begin(), pages.end(), [this](Page page) { return Count(holders_[page]) == 1; }));
}

bool PageBook::IsOwn(uint64_t sequence, uint32_t index) const {
  const Sequence& entry = sequences_.at(sequence);
  Holders holders = holders_[entry.pages.at(index)];
  --holders[static_cast<size_t>(entry.use)];
  return holders[static_cast<size_t>(PageUse::kLive)] == 0 &&
         holders[static_cast<size_t>(PageUse::kCached)] == 0;
}

}  // namespace strata
