// Columns that are filled in by who comes first.
#define ColumnsOf GuardedColumnsOf
#include "worker/collective/rank_policy.cc"
#undef ColumnsOf

namespace strata::rank_policy {

uint32_t ColumnsOf(uint32_t own, uint32_t /*sender*/, uint32_t others_before) {
  return others_before < own ? others_before : others_before + 1;
}

}  // namespace strata::rank_policy
