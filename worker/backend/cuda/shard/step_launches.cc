#include "worker/backend/cuda/shard/step_launches.h"

#include <algorithm>
#include <utility>

#include "common/footprint/device_limits.h"
#include "common/status.h"

namespace strata::cuda {

absl::Status StepLaunches::Add(const StepCall& call) {
  if (puts_off_) {
    calls_.push_back(call);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(launch_(call));
  return device_.LaunchStatus();
}

void StepLaunches::TakeBack(StepCall::Kind kind) {
  if (!calls_.empty() && calls_.back().kind == kind) {
    calls_.pop_back();
  }
}

absl::Status StepLaunches::Flush(StepShape shape) {
  if (calls_.empty()) {
    return absl::OkStatus();
  }
  shape.calls = std::exchange(calls_, {});
  absl::Status launched;
  const auto launch_all = [&] {
    for (const StepCall& call : shape.calls) {
      launched.Update(launch_(call));
    }
  };
  const auto known = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Known& one) { return SameLaunches(one.shape, shape); });
  if (known == graphs_.end()) {
    launch_all();
    RETURN_IF_ERROR(launched);
    RETURN_IF_ERROR(device_.LaunchStatus());
    graphs_.push_front({std::move(shape), {}});
    if (graphs_.size() > kDeviceGraphs) {
      graphs_.pop_back();
    }
    return absl::OkStatus();
  }
  graphs_.splice(graphs_.begin(), graphs_, known);
  if (known->graph.get() == nullptr) {
    ASSIGN_OR_RETURN(const Graph graph, device_.RecordGraph(launch_all));
    OwnedGraph recorded(&device_, graph);
    RETURN_IF_ERROR(launched);
    known->graph = std::move(recorded);
  }
  return device_.LaunchGraph(known->graph.get());
}

}  // namespace strata::cuda
