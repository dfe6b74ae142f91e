// The launches of a step. Those of a step of few rows are put off until something is read of it,
// and then go to the device as one graph, which takes the host less time than a launch for each
// kernel: with few rows, that is what a step waits for.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_STEP_LAUNCHES_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_STEP_LAUNCHES_H_

#include <cstdint>
#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/shard/step_shape.h"

namespace strata::cuda {

// So many rows are few.
inline constexpr uint32_t kFewRows = 8;

class StepLaunches {
 public:
  // `launch` launches what a call does, on the device's stream of kernels.
  StepLaunches(Device* device, std::function<absl::Status(const StepCall&)> launch)
      : device_(*device), launch_(std::move(launch)) {}

  // What is added from now on is put off, or is not. Nothing is put off at that time.
  void PutOff(bool put_off) { puts_off_ = put_off; }
  absl::Status Add(const StepCall& call);
  // Launches all that was put off, of a batch of this shape, whose calls are left out. Steps of a
  // shape are launched kernel by kernel the first time, and as a graph from the second one on.
  absl::Status Flush(StepShape shape);
  bool waits() const { return !calls_.empty(); }
  // The last that was put off is not wanted any more, if it is of this kind.
  void TakeBack(StepCall::Kind kind);

  // Something that all launches name is in another place from now on.
  void ForgetGraphs() { graphs_.clear(); }

 private:
  struct Known {
    StepShape shape;
    OwnedGraph graph;  // None yet: it was seen once.
  };

  Device& device_;
  const std::function<absl::Status(const StepCall&)> launch_;
  bool puts_off_ = false;
  std::vector<StepCall> calls_;
  std::list<Known> graphs_;  // What was used last comes first.
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_STEP_LAUNCHES_H_
