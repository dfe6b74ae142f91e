// The cache over a book of pages, against a model that knows every sequence's content.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/limits.h"
#include "coordinator/prefix/page_book.h"
#include "coordinator/prefix/prefix_cache.h"
#include "tests/sim/random.h"

namespace strata {
namespace {

using Content = std::vector<uint32_t>;  // A number a page.

std::vector<PrefixKey> Keys(const Content& content) {
  std::vector<PrefixKey> keys;
  for (const uint32_t page : content) {
    const std::vector<uint32_t> block(kPageTokens, page);
    keys.push_back(PrefixLink(keys.empty() ? PrefixKey{} : keys.back(), block));
  }
  return keys;
}

uint32_t Common(const Content& a, const Content& b) {
  return static_cast<uint32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                               a.begin());
}

class Churn {
 public:
  // `alone`: one live sequence at a time, so that no content is computed twice.
  Churn(uint64_t seed, bool alone) : random_(seed), alone_(alone) {}

  void Run(int rounds) {
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
      const uint32_t op = random_.Below(10);
      if (op < 3 && (!alone_ || live_.empty())) {
        Begin();
      } else if (op < 6) {
        Publish();
      } else if (op < 8) {
        End(/*keep=*/true);
      } else if (op < 9) {
        End(/*keep=*/false);
      } else {
        Evict();
      }
      CheckFind();
      CheckKept();
    }
  }
  uint64_t hits() const { return hits_; }
  uint64_t evicted() const { return evicted_; }

 private:
  struct Sequence {
    Content content;  // Of it, `published` pages are.
    uint32_t published = 0;
  };

  // Few values, so that beginnings are shared.
  Content Draw() {
    Content content(random_.Between(1, 8));
    for (uint32_t& page : content) {
      page = random_.Below(2);
    }
    return content;
  }

  Content Published(uint64_t sequence) const {
    const Sequence& entry = all_.at(sequence);
    return {entry.content.begin(), entry.content.begin() + entry.published};
  }

  uint64_t Pick(const std::set<uint64_t>& from) {
    return *std::next(from.begin(), random_.Below(from.size()));
  }

  void Use(const Content& content, uint32_t pages) {
    used_[Content(content.begin(), content.begin() + pages)] = ++clock_;
  }

  void Begin() {
    const uint64_t id = next_++;
    const Content content = Draw();
    const auto keys = Keys(content);
    const PrefixCache::Match match = cache_.Find(std::span(keys).first(keys.size() - 1));
    // Some take no hit and compute what is there already.
    const uint32_t shared = !alone_ && random_.OneIn(4) ? 0 : match.pages;
    book_.Add(id, PageUse::kLive);
    if (shared > 0) {
      ++hits_;
      book_.Share(match.source, id, shared);
      Use(content, shared);
    }
    book_.Resize(id, static_cast<uint32_t>(content.size()));
    cache_.Begin(id, keys, shared);
    cache_.Publish(id, std::span(keys).first(shared));
    all_[id] = {content, shared};
    live_.insert(id);
  }

  void Publish() {
    if (live_.empty()) {
      return;
    }
    const uint64_t id = Pick(live_);
    Sequence& entry = all_[id];
    const uint32_t upto =
        random_.Between(entry.published, static_cast<uint32_t>(entry.content.size()));
    const auto keys = Keys(entry.content);
    cache_.Publish(id, std::span(keys).first(upto));
    while (entry.published < upto) {
      Use(entry.content, ++entry.published);
    }
  }

  void End(bool keep) {
    if (live_.empty()) {
      return;
    }
    const uint64_t id = Pick(live_);
    live_.erase(id);
    std::vector<PrefixCache::Cut> cuts = {{id, 0}};
    if (keep) {
      const uint32_t published = all_[id].published;
      book_.Resize(id, published);
      book_.SetUse(id, PageUse::kCached);
      kept_.insert(id);
      cuts = cache_.Keep(id);
    } else {
      cache_.Remove(id);
    }
    Apply(cuts);
  }

  void Apply(const std::vector<PrefixCache::Cut>& cuts) {
    for (const PrefixCache::Cut& cut : cuts) {
      book_.Resize(cut.sequence, cut.pages);
      all_[cut.sequence].published = cut.pages;
      if (cut.pages == 0) {
        book_.Drop(cut.sequence);
        kept_.erase(cut.sequence);
        all_.erase(cut.sequence);
      }
    }
  }

  bool Gives(uint64_t sequence) const {
    return book_.IsOwn(sequence, all_.at(sequence).published - 1);
  }

  // Newest use of the prefix or of anything that ever continued it.
  uint64_t UsedAt(const Content& prefix) const {
    uint64_t used = 0;
    for (const auto& [content, when] : used_) {
      if (Common(prefix, content) == prefix.size()) {
        used = std::max(used, when);
      }
    }
    return used;
  }

  void Evict() {
    uint64_t oldest = 0;
    for (const uint64_t id : kept_) {
      if (Gives(id) && (oldest == 0 || UsedAt(Published(id)) < UsedAt(Published(oldest)))) {
        oldest = id;
      }
    }
    const uint64_t wanted = alone_ ? 1 : random_.Between(1, 12);
    const uint64_t before = book_.pages();
    const auto is_own = [this](uint64_t sequence, uint32_t index) {
      return book_.IsOwn(sequence, index);
    };
    auto cuts = cache_.Evict(wanted, is_own);
    if (alone_) {
      ASSERT_EQ(cuts.size(), oldest == 0 ? 0u : 1u);
      if (oldest != 0) {
        EXPECT_EQ(cuts[0].sequence, oldest);
      }
    }
    Apply(cuts);
    while (!cuts.empty() && before - book_.pages() < wanted) {
      cuts = cache_.Evict(wanted - (before - book_.pages()), is_own);
      Apply(cuts);
    }
    const uint64_t returned = before - book_.pages();
    evicted_ += returned;
    if (returned < wanted) {
      EXPECT_TRUE(std::none_of(kept_.begin(), kept_.end(), [this](uint64_t id) {
        return Gives(id);
      })) << "pages were left that would have come back";
    }
  }

  void CheckFind() {
    const Content content = Draw();
    uint32_t best = 0;
    for (const auto& [id, entry] : all_) {
      best = std::max(best, Common(Published(id), content));
    }
    const PrefixCache::Match match = cache_.Find(Keys(content));
    ASSERT_EQ(match.pages, best);
    if (best > 0) {
      ASSERT_GE(Common(Published(match.source), content), best);
    }
    if (match.computing != 0) {
      ASSERT_TRUE(live_.contains(match.computing));
      ASSERT_GE(Common(all_.at(match.computing).content, content), match.coming);
      ASSERT_GT(match.coming, all_.at(match.computing).published);
    }
  }

  void CheckKept() {
    ASSERT_EQ(cache_.kept(), kept_.size());
    ASSERT_EQ(cache_.live(), live_.size());
    std::set<Content> prefixes;
    for (const auto& [id, entry] : all_) {
      ASSERT_EQ(cache_.PagesOf(id), entry.published);
      for (uint32_t pages = 1; pages <= entry.published; ++pages) {
        prefixes.emplace(entry.content.begin(), entry.content.begin() + pages);
      }
    }
    ASSERT_EQ(cache_.nodes(), prefixes.size());
    for (const uint64_t a : kept_) {
      for (const uint64_t b : kept_) {
        ASSERT_TRUE(a == b || Common(Published(a), Published(b)) < Published(a).size())
            << "a kept sequence says nothing new";
      }
    }
  }

  sim::Random random_;
  const bool alone_;
  PrefixCache cache_;
  PageBook book_;
  std::map<uint64_t, Sequence> all_;
  std::set<uint64_t> live_;
  std::set<uint64_t> kept_;
  std::map<Content, uint64_t> used_;
  uint64_t next_ = 1;
  uint64_t clock_ = 0;
  uint64_t hits_ = 0;
  uint64_t evicted_ = 0;
};

TEST(PrefixChurn, FindsKeepsAndEvictsAsAModelThatKnowsAllContent) {
  uint64_t hits = 0;
  uint64_t evicted = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Churn churn(seed, /*alone=*/false);
    churn.Run(300);
    hits += churn.hits();
    evicted += churn.evicted();
  }
  EXPECT_GT(hits, 500u);
  EXPECT_GT(evicted, 500u);
}

TEST(PrefixChurn, EvictsTheLeastRecentlyUsedOfAll) {
  uint64_t evicted = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Churn churn(seed, /*alone=*/true);
    churn.Run(300);
    evicted += churn.evicted();
  }
  EXPECT_GT(evicted, 100u);
}

// Ten times the work takes ten times as many steps, and not a hundred times.
TEST(PrefixChurn, CostGrowsWithTheWorkAndNotWithItsSquare) {
  const auto steps = [](uint32_t sequences) {
    PrefixCache cache({.nodes = 1 << 22, .kept = 1 << 20});
    const Content stem(16, 1);
    for (uint64_t id = 1; id <= sequences; ++id) {
      Content content = stem;
      content.push_back(static_cast<uint32_t>(id) + 2);
      content.push_back(3);
      const auto keys = Keys(content);
      const uint32_t shared = cache.Find(keys).pages;
      cache.Begin(id, keys, shared);
    }
    for (uint64_t id = 1; id <= sequences; ++id) {
      Content content = stem;
      content.push_back(static_cast<uint32_t>(id) + 2);
      content.push_back(3);
      cache.Publish(id, Keys(content));
    }
    for (uint64_t id = 1; id <= sequences; ++id) {
      cache.Keep(id);
    }
    EXPECT_EQ(cache.kept(), sequences);
    cache.Evict(UINT64_MAX, [](uint64_t, uint32_t) { return true; });
    EXPECT_EQ(cache.kept(), 0u);
    return cache.steps();
  };
  const uint64_t once = steps(2000);
  EXPECT_GE(once, 2000u * 18);  // It counts: each key is at least looked up.
  EXPECT_LE(steps(20000), 11 * once);
}

}  // namespace
}  // namespace strata
