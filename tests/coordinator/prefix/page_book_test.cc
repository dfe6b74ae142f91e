#include "coordinator/prefix/page_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/sim/random.h"

namespace strata {
namespace {

constexpr PageUse kUses[] = {PageUse::kLive, PageUse::kCached, PageUse::kFenced};

TEST(PageBook, ASharedPageCountsOnceAndForItsStrongestUse) {
  PageBook book;
  book.Add(1, PageUse::kLive);
  book.Resize(1, 5);
  book.Add(2, PageUse::kLive);
  book.Share(1, 2, 3);
  book.Resize(2, 4);
  EXPECT_EQ(book.pages(), 6u);
  EXPECT_FALSE(book.IsOwn(1, 2));
  EXPECT_TRUE(book.IsOwn(1, 3));
  book.SetUse(1, PageUse::kCached);
  EXPECT_EQ(book.pages(PageUse::kLive), 4u);
  EXPECT_EQ(book.pages(PageUse::kCached), 2u);
  book.SetUse(2, PageUse::kFenced);
  EXPECT_EQ(book.pages(PageUse::kCached), 5u);
  EXPECT_EQ(book.pages(PageUse::kFenced), 1u);
  // What only waits for its release does not keep a page from coming back.
  EXPECT_TRUE(book.IsOwn(1, 2));
  book.Split(1, 2, 9);
  book.SetUse(9, PageUse::kFenced);
  EXPECT_EQ(book.size(1), 2u);
  EXPECT_EQ(book.pages(PageUse::kCached), 2u);
  EXPECT_EQ(book.pages(PageUse::kFenced), 4u);
  book.Drop(9);
  EXPECT_EQ(book.pages(), 4u);
  book.Drop(1);
  book.Drop(2);
  EXPECT_EQ(book.pages(), 0u);
  EXPECT_EQ(book.sequences(), 0u);
}

// The same with a set of holders a page.
struct NaiveBook {
  std::map<uint64_t, std::vector<int>> pages;
  std::map<uint64_t, PageUse> uses;
  int next = 0;

  uint64_t Count(PageUse use) const {
    std::map<int, PageUse> strongest;
    for (const auto& [sequence, list] : pages) {
      for (const int page : list) {
        const auto it = strongest.try_emplace(page, uses.at(sequence)).first;
        it->second = std::min(it->second, uses.at(sequence));
      }
    }
    uint64_t count = 0;
    for (const auto& [page, strong] : strongest) {
      count += strong == use ? 1 : 0;
    }
    return count;
  }
  bool IsOwn(uint64_t sequence, size_t index) const {
    for (const auto& [other, list] : pages) {
      if (other != sequence && uses.at(other) != PageUse::kFenced &&
          std::count(list.begin(), list.end(), pages.at(sequence)[index]) > 0) {
        return false;
      }
    }
    return true;
  }
};

TEST(PageBook, CountsAsSetsOfHoldersDo) {
  sim::Random random(1);
  PageBook book;
  NaiveBook naive;
  uint64_t next = 1;
  for (int round = 0; round < 4000; ++round) {
    const PageUse use = kUses[random.Below(3)];
    auto it = naive.pages.begin();
    if (!naive.pages.empty()) {
      std::advance(it, random.Below(naive.pages.size()));
    }
    // Few at a time: where there are more than twelve, one is dropped.
    const uint32_t op = naive.pages.size() > 12 ? 5 : random.Below(6);
    if (naive.pages.empty() || op == 0) {
      book.Add(next, use);
      naive.uses[next] = use;
      naive.pages[next++];
      continue;
    }
    const uint64_t id = it->first;
    std::vector<int>& pages = it->second;
    if (op == 1) {
      const uint32_t size = random.Below(12);
      book.Resize(id, size);
      while (pages.size() < size) {
        pages.push_back(naive.next++);
      }
      pages.resize(size);
    } else if (op == 2) {
      const uint32_t shared = random.Below(pages.size() + 1);
      book.Add(next, use);
      book.Share(id, next, shared);
      naive.uses[next] = use;
      naive.pages[next++] = std::vector<int>(pages.begin(), pages.begin() + shared);
    } else if (op == 3) {
      const uint32_t keep = random.Below(pages.size() + 1);
      book.Split(id, keep, next);
      naive.uses[next] = naive.uses[id];
      naive.pages[next++] = std::vector<int>(pages.begin() + keep, pages.end());
      pages.resize(keep);
    } else if (op == 4) {
      book.SetUse(id, use);
      naive.uses[id] = use;
    } else {
      book.Drop(id);
      naive.uses.erase(id);
      naive.pages.erase(it);
    }
    for (const PageUse each : kUses) {
      ASSERT_EQ(book.pages(each), naive.Count(each)) << round;
    }
    for (const auto& [sequence, list] : naive.pages) {
      ASSERT_EQ(book.size(sequence), list.size());
      ASSERT_EQ(book.use(sequence), naive.uses.at(sequence));
      if (!list.empty()) {
        ASSERT_EQ(book.IsOwn(sequence, static_cast<uint32_t>(list.size() - 1)),
                  naive.IsOwn(sequence, list.size() - 1));
      }
    }
  }
}

}  // namespace
}  // namespace strata
