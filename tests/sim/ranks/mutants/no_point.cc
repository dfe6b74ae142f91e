// A rank that takes what another sends of any call: one may be a step behind.
#define IsOfCall GuardedIsOfCall
#include "worker/collective/rank_policy.cc"
#undef IsOfCall

namespace strata::rank_policy {

bool IsOfCall(const RankFrameHead& own, const RankFrameHead& other) {
  return other.kind == own.kind && other.rows == own.rows && other.shape == own.shape;
}

}  // namespace strata::rank_policy
