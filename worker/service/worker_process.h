// The worker as a process: everything put together.
#ifndef STRATA_WORKER_SERVICE_WORKER_PROCESS_H_
#define STRATA_WORKER_SERVICE_WORKER_PROCESS_H_

#include "absl/status/status.h"
#include "worker/service/worker_options.h"

namespace strata {

// Listens, joins the cluster and serves until a stop signal. `options` are complete. Errors:
// INVALID_ARGUMENT for wrong use, others for what failed.
absl::Status RunWorker(const WorkerOptions& options);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_WORKER_PROCESS_H_
