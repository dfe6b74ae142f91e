// Where the ranks' pieces of a page are.
#ifndef STRATA_WORKER_RANKS_PAGE_PARTS_H_
#define STRATA_WORKER_RANKS_PAGE_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/backend/rank_shard.h"

namespace strata {

// Of a page of a KV group: of all ranks one behind another, and of a stage of one rank.
struct PageParts {
  PageParts(const RankShard& shard, uint32_t group, uint32_t ranks) : columns(ranks) {
    shard.ForPageParts(group, [this](size_t rank, size_t at, size_t of_whole, size_t bytes) {
      columns[rank].end = std::max(columns[rank].end, at + bytes);
      whole_bytes = std::max(whole_bytes, of_whole + bytes);
    });
    size_t begin = 0;
    for (ByteColumns& one : columns) {
      one = {begin, begin + one.end};
      begin = one.end;
    }
  }

  std::vector<ByteColumns> columns;  // By rank.
  size_t whole_bytes = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_PAGE_PARTS_H_
