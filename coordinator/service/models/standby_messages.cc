#include "coordinator/service/models/standby_messages.h"

#include <utility>

#include "strata/v1/membership.pb.h"

namespace strata {

void SayToKeepers(uint64_t id, const Deployment* deployment,
                  const std::vector<StandbyBook::Say>& says, DeploymentHost* host,
                  StandbyBook* book) {
  for (const StandbyBook::Say& say : says) {
    v1::CoordinatorMessage message;
    if (!say.keep.has_value()) {
      message.mutable_drop_layers()->set_deployment(id);
      message.mutable_drop_layers()->mutable_layers()->Add(say.drop.begin(), say.drop.end());
    } else if (deployment == nullptr) {
      continue;
    } else {
      message.mutable_keep_layer()->set_deployment(id);
      *message.mutable_keep_layer()->mutable_load() =
          deployment->MakeLayerLoad(*say.keep, /*tokens=*/1, /*rows=*/1);
    }
    if (!host->SendToNode(say.node.name, say.node.incarnation, std::move(message))) {
      book->NotSaid(say);
    }
  }
}

}  // namespace strata
