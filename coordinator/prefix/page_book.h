// Which sequences hold which KV pages, where sequences that begin alike share them: the
// coordinator's picture of a stage's pool. One number stands for a page of every stage and full
// attention group, since all of them hold the same tokens.
#ifndef STRATA_COORDINATOR_PREFIX_PAGE_BOOK_H_
#define STRATA_COORDINATOR_PREFIX_PAGE_BOOK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace strata {

// What a sequence's pages are for. A page that several hold counts for the first of these.
enum class PageUse { kLive, kCached, kFenced };
inline constexpr size_t kPageUses = 3;

// Every call costs as much as the pages that it names. One thread.
class PageBook {
 public:
  // Sequences are named by the caller. A new one has no pages.
  void Add(uint64_t sequence, PageUse use);
  bool Has(uint64_t sequence) const { return sequences_.contains(sequence); }
  // Takes new pages at the end, or gives up those beyond `pages`.
  void Resize(uint64_t sequence, uint32_t pages);
  // `to`, which has none, gets the first `pages` pages of `from`, which keeps them.
  void Share(uint64_t from, uint64_t to, uint32_t pages);
  // Its page at `index`, if it has one and others hold it too, becomes a new one of its own.
  void Unshare(uint64_t sequence, uint32_t index);
  // Moves the pages beyond the first `keep` into the new sequence `tail`, of the same use.
  void Split(uint64_t sequence, uint32_t keep, uint64_t tail);
  void SetUse(uint64_t sequence, PageUse use);
  void Drop(uint64_t sequence);

  uint32_t size(uint64_t sequence) const;
  PageUse use(uint64_t sequence) const;
  size_t sequences() const { return sequences_.size(); }
  // Whether no other sequence holds the page at `index`, but for such as are kFenced.
  bool IsOwn(uint64_t sequence, uint32_t index) const;

  // Pages that no other sequence holds at all.
  uint32_t SolePages(uint64_t sequence) const;

  // Pages of a use, each counted once however many hold it.
  uint64_t pages(PageUse use) const { return pages_[static_cast<size_t>(use)]; }
  uint64_t pages() const { return pages_[0] + pages_[1] + pages_[2]; }

 private:
  using Page = uint32_t;
  using Holders = std::array<uint32_t, kPageUses>;  // By use.
  struct Sequence {
    PageUse use = PageUse::kLive;
    std::vector<Page> pages;
  };

  static size_t Counted(const Holders& holders);
  static uint32_t Count(const Holders& holders) { return holders[0] + holders[1] + holders[2]; }
  void Hold(Page page, PageUse use);
  void Leave(Page page, PageUse use);
  Page NewPage();

  std::unordered_map<uint64_t, Sequence> sequences_;
  std::vector<Holders> holders_;  // By page.
  std::vector<Page> unused_;
  std::array<uint64_t, kPageUses> pages_{};
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PREFIX_PAGE_BOOK_H_
