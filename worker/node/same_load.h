#ifndef STRATA_WORKER_NODE_SAME_LOAD_H_
#define STRATA_WORKER_NODE_SAME_LOAD_H_

#include "strata/v1/membership.pb.h"

namespace strata {

// Whether the two ask for the same weights in the same form, and for other KV at most.
bool SameButForKv(const v1::Load& a, const v1::Load& b);

}  // namespace strata

#endif  // STRATA_WORKER_NODE_SAME_LOAD_H_
