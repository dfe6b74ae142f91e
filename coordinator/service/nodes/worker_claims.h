// What workers say of themselves and of each other, looked at before anything believes it: texts
// that end in tables, logs and terminals, and figures that plans are made of.
#ifndef STRATA_COORDINATOR_SERVICE_NODES_WORKER_CLAIMS_H_
#define STRATA_COORDINATOR_SERVICE_NODES_WORKER_CLAIMS_H_

#include "absl/status/status.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// Whether a node may join with this: a name that is one (BAD_NAME), an address that can be dialled
// (BAD_ADDRESS), short printable texts, speeds and sizes that some machine could have
// (BAD_NODE_INFO). INVALID_ARGUMENT, with the field and what it may be.
absl::Status CheckNodeInfo(const v1::NodeInfo& info);

// Makes the texts of a message printable and short. Figures that no machine has are taken out: of a
// heartbeat to 0, of a measured link to an error (BAD_MEASURE). Then an error that says which;
// the rest of the message may be used all the same.
absl::Status CleanMessage(v1::WorkerMessage* message);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_NODES_WORKER_CLAIMS_H_
