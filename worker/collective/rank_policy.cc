#include "worker/collective/rank_policy.h"

namespace strata::rank_policy {

bool IsOfCall(const RankFrameHead& own, const RankFrameHead& other) {
  return other.kind == own.kind && other.point == own.point && other.rows == own.rows &&
         other.shape == own.shape;
}

uint32_t ColumnsOf(uint32_t /*own*/, uint32_t sender, uint32_t /*others_before*/) { return sender; }

bool HearsItsOwnAbort() { return true; }

}  // namespace strata::rank_policy
