// Who holds which page: numbers and reference counts by KV group. What a page is made of is the
// backend's affair.
#ifndef STRATA_WORKER_RUNNER_KV_POOL_H_
#define STRATA_WORKER_RUNNER_KV_POOL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/stage.h"

namespace strata {

// Of one stage. One thread at a time.
class KvPool {
 public:
  // Pages [0, pages_by_group[g]) of each group g, all free.
  explicit KvPool(std::span<const uint64_t> pages_by_group);

  uint32_t groups() const { return static_cast<uint32_t>(groups_.size()); }
  uint64_t total(uint32_t group) const { return groups_[group].references.size(); }
  uint64_t free(uint32_t group) const { return groups_[group].free.size(); }

  // A free page, held once. There must be one.
  PageId Allocate(uint32_t group);
  // One more holder of a page that has one.
  void Retain(uint32_t group, PageId page);
  // One holder less; the last one frees the page.
  void Release(uint32_t group, PageId page);
  uint32_t references(uint32_t group, PageId page) const { return groups_[group].references[page]; }

 private:
  struct Group {
    std::vector<uint32_t> references;  // By page.
    std::vector<PageId> free;          // The last one is given out next.
  };
  std::vector<Group> groups_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_KV_POOL_H_
