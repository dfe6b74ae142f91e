#include "worker/runner/kv_pool.h"

#include "common/check.h"

namespace strata {

KvPool::KvPool(std::span<const uint64_t> pages_by_group) : groups_(pages_by_group.size()) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.references.assign(pages_by_group[g], 0);
    group.free.reserve(pages_by_group[g]);
    for (uint64_t page = pages_by_group[g]; page > 0; --page) {
      group.free.push_back(static_cast<PageId>(page - 1));
    }
  }
}

PageId KvPool::Allocate(uint32_t group) {
  Group& pages = groups_[group];
  STRATA_CHECK(!pages.free.empty());
  const PageId page = pages.free.back();
  pages.free.pop_back();
  pages.references[page] = 1;
  return page;
}

void KvPool::Retain(uint32_t group, PageId page) {
  STRATA_CHECK(groups_[group].references[page] > 0);
  ++groups_[group].references[page];
}

void KvPool::Release(uint32_t group, PageId page) {
  Group& pages = groups_[group];
  STRATA_CHECK(pages.references[page] > 0);
  if (--pages.references[page] == 0) {
    pages.free.push_back(page);
  }
}

}  // namespace strata
