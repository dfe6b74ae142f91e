// What parts of a model count of the memory of a node that divides its stages over several devices.
#ifndef STRATA_COORDINATOR_PLANNER_NODE_DEVICES_H_
#define STRATA_COORDINATOR_PLANNER_NODE_DEVICES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "common/model/stage_devices.h"
#include "coordinator/planner/planner.h"

namespace strata {

// Each part counts as OfAllMemory has it, so that the sum of parts is no less than what a worker
// counts of them together.
class NodeDevices {
 public:
  // `devices` are a node's, at least two; `model` has of_rank.
  NodeDevices(const std::vector<PlannerDevice>& devices, const PlannerModel& model);

  // Of what of(weights) says of each device's weights.
  uint64_t Counted(const std::function<uint64_t(const PlannerWeights&)>& of) const;
  // Of `bytes` on each device.
  uint64_t CountedOfEach(uint64_t bytes) const;
  // Of a page of KV of one layer.
  uint64_t CountedPage(uint32_t layer) const { return pages_[layer].counted; }
  // The number of the device that layers [begin, end) with pages(KV group) fill furthest.
  uint32_t Fullest(uint32_t begin, uint32_t end,
                   const std::function<uint64_t(uint32_t group)>& pages) const;
  // Of the host's memory, the most that weights on their way to all devices take more than those on
  // their way to one (StagedBytes), and copies.
  uint64_t HostBesides(const PlannerModel& model) const;

 private:
  // A page of one layer.
  struct Page {
    uint32_t group = 0;
    std::vector<uint64_t> bytes;  // By device.
    uint64_t counted = 0;
  };
  std::vector<uint32_t> indices_;
  std::vector<StageDevice> devices_;
  std::vector<PlannerWeights> weights_;  // Of each.
  std::vector<Page> pages_;              // Of each layer.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_NODE_DEVICES_H_
