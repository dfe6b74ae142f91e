// What nodes are told of the layers that they keep for losses.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_STANDBY_MESSAGES_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_STANDBY_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/service/models/standby_book.h"

namespace strata {

// Sends each of `says`, of the deployment `id`, by `host`; `book` hears which could not be sent.
// What is to be kept is left out where `deployment` is null: it is no more.
void SayToKeepers(uint64_t id, const Deployment* deployment,
                  const std::vector<StandbyBook::Say>& says, DeploymentHost* host,
                  StandbyBook* book);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_STANDBY_MESSAGES_H_
