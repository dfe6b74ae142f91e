// What --standby promises, once all is calm: what is said to be kept is there, and the loss of a
// node moves no weights.
#ifndef STRATA_TESTS_SIM_STANDBY_CHECK_H_
#define STRATA_TESTS_SIM_STANDBY_CHECK_H_

#include <cstdint>

#include "tests/sim/cluster.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {

// All layers are said to be kept for the loss of their nodes, and they are.
bool KeptIsThere(const Cluster& cluster);
// A worker whose loss must move no weights: others have kept its layers, and no fault has damaged
// those or what the others compute. Null: there is none.
SimWorker* Expendable(const Cluster& cluster);
// Whether the model serves without it.
bool ServesWithout(const Cluster& cluster, const SimWorker& lost);
// Blobs that stages have fetched, of all workers.
uint64_t BlobsFetched(const Cluster& cluster);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_STANDBY_CHECK_H_
