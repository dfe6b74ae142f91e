// Nodes that divide their stages over several devices: each device's memory counts.
#include "coordinator/planner/node_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/footprint/device_limits.h"
#include "common/footprint/footprint.h"
#include "common/model/stage_devices.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/planner/placement_problem.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::kGiB;
using testing::kMiB;
using testing::MakeCluster;
using testing::MakeRequest;

constexpr PlannerLink kLink = {.latency_ms = 0.1, .bytes_per_s = 1e9};

PlannerModel DividedModel() { return testing::MakeModel(8, 4096, 11264, 32, 8, 32000); }

PlannerNode GpuNode(std::string name, const std::vector<double>& shares,
                    const std::vector<uint64_t>& memory) {
  PlannerNode node = testing::MakeNode(std::move(name), 0, 4000, 1e5);
  node.device = "cuda";
  node.device_name = "2 x GPU of tests";
  node.host_free_bytes = 64 * kGiB;
  node.ranks = false;
  const std::vector<OutputRange> parts = *SharesByWeight(shares);
  for (size_t i = 0; i < memory.size(); ++i) {
    node.devices.push_back({.index = static_cast<uint32_t>(i) + 4,
                            .of_stage = {.share = parts[i], .memory_bytes = memory[i]}});
    node.free_bytes += memory[i];
  }
  return node;
}

// What a stage takes of a device, as a worker counts it.
uint64_t OnDevice(const PlannerModel& model, const PlannerNode& node, size_t rank,
                  const v1::PlanStage& stage, const PlannerRequest& request) {
  std::vector<OutputRange> shares;
  for (const PlannerDevice& device : node.devices) shares.push_back(device.of_stage.share);
  const PlannerWeights weights = model.of_rank(shares, rank);
  const ModelSpec own = WithHeadsOf(SplitOutputs(model.spec, shares)[rank], model.spec);
  const bool heads = stage.last_layer() + 1 == model.spec.layers.size();
  uint64_t bytes = (stage.first_layer() == 0 ? weights.embed_bytes : 0) +
                   (heads ? weights.head_bytes : 0) + kGatherBytes +
                   CudaFootprint().BufferBytes(model.spec, request.options.max_batch_tokens(),
                                               heads, request.options.context());
  for (uint32_t l = stage.first_layer(); l <= stage.last_layer(); ++l) {
    bytes += weights.layer_bytes[l] +
             stage.kv_pages(0) * CudaFootprint().PageBytes(own, l, l, 0, v1::KV_DTYPE_F16);
  }
  return bytes;
}

TEST(NodeDevices, APlanFillsNoDeviceBeyondItsMemory) {
  const PlannerModel model = DividedModel();
  struct {
    std::vector<double> shares;
    std::vector<uint64_t> memory;
  } const cases[] = {{{1, 1}, {4 * kGiB, 4 * kGiB}},
                     {{1, 1}, {6 * kGiB, 3 * kGiB}},
                     {{2, 1}, {5 * kGiB, 5 * kGiB}},
                     {{1, 1, 1}, {2 * kGiB, 2 * kGiB, 2 * kGiB}},
                     {{1, 2, 1, 1}, {2 * kGiB, 3 * kGiB, 2 * kGiB, 2 * kGiB}}};
  for (const auto& one : cases) {
    const PlannerNode node = GpuNode("gpus", one.shares, one.memory);
    const PlannerCluster cluster = MakeCluster({node}, kLink);
    const PlannerRequest request = MakeRequest(v1::PLAN_GOAL_CAPACITY, 4096);
    const auto plan = MakePlan(cluster, model, request);
    ASSERT_TRUE(plan.ok()) << one.shares.size() << ": " << Describe(plan.status());
    const v1::PlanStage& stage = OnlyPipeline(*plan).stages(0);
    std::vector<StageDevice> devices;
    std::vector<uint64_t> taken;
    double fullest = 0;
    for (size_t rank = 0; rank < node.devices.size(); ++rank) {
      devices.push_back(node.devices[rank].of_stage);
      taken.push_back(OnDevice(model, node, rank, stage, request));
      EXPECT_LE(taken.back(), one.memory[rank]) << rank;
      fullest = std::max(fullest,
                         static_cast<double>(taken.back()) / static_cast<double>(one.memory[rank]));
    }
    EXPECT_GT(fullest, 0.85) << one.shares.size();  // Little is lost on the fullest.
    // What coordinators set aside of a plan is no less than what workers count.
    const uint64_t buffers = CudaFootprint().BufferBytes(
        model.spec, request.options.max_batch_tokens(), true, request.options.context());
    EXPECT_GE(stage.weight_bytes() + stage.kv_bytes() + buffers, OfAllMemory(devices, taken));
  }
}

TEST(NodeDevices, AModelThatOneOfThemHasNoRoomForIsRefusedAndTheDeviceNamed) {
  const PlannerModel model = DividedModel();
  PlannerRequest request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
  // All together have the memory, but half of each stage is more than the second has.
  const PlannerCluster cluster =
      MakeCluster({GpuNode("gpus", {1, 1}, {8 * kGiB, 1 * kGiB})}, kLink);
  const absl::Status status = MakePlan(cluster, model, request).status();
  EXPECT_EQ(ReasonOf(status), "MODEL_DOES_NOT_FIT");
  EXPECT_THAT(status.message(), HasSubstr("its GPU 5 is filled first"));
  auto* const pin = request.options.add_layers();
  pin->set_last_layer(7);
  pin->add_ranks()->set_node("gpus");
  const absl::Status pinned = MakePlan(cluster, model, request).status();
  EXPECT_EQ(ReasonOf(pinned), "MODEL_DOES_NOT_FIT");
  EXPECT_THAT(pinned.message(), HasSubstr("its GPU 5 is filled first"));
  // By shares of their memory it fits.
  EXPECT_TRUE(MakePlan(MakeCluster({GpuNode("gpus", {7, 1}, {8 * kGiB, 1 * kGiB})}, kLink), model,
                       MakeRequest(v1::PLAN_GOAL_LATENCY, 4096))
                  .ok());
}

TEST(NodeDevices, EachHasItsBuffersAndWhatGathersTake) {
  const PlannerModel model = DividedModel();
  const PlannerCluster cluster =
      MakeCluster({GpuNode("two", {1, 1}, {4 * kGiB, 4 * kGiB}),
                   GpuNode("four", {1, 1, 1, 1}, {2 * kGiB, 2 * kGiB, 2 * kGiB, 2 * kGiB})},
                  kLink);
  const PlacementProblem problem(cluster, model, {0, 1}, 256, 4096);
  const uint64_t buffers = CudaFootprint().BufferBytes(model.spec, 256, false, 4096);
  const uint64_t layer = model.layer_bytes[1];
  EXPECT_NEAR(static_cast<double>(problem.StageBytes(0, 1, 2)),
              static_cast<double>(layer + 2 * (buffers + kGatherBytes)), 64);
  EXPECT_NEAR(static_cast<double>(problem.StageBytes(1, 1, 2)),
              static_cast<double>(layer + 4 * (buffers + kGatherBytes)), 64);
  // The first device has all of the embedding.
  EXPECT_EQ(problem.WeightBytes(0, 0, 1) - problem.WeightBytes(0, 1, 2), 2 * model.embed_bytes);
  // A layer takes as long as its own bytes do, whatever counts of the memory.
  EXPECT_EQ(problem.StageMs(0, 1, 2), problem.StageMs(1, 1, 2));
}

TEST(NodeDevices, APlanSaysWhatEachHasOfAStage) {
  const auto plan = MakePlan(MakeCluster({GpuNode("gpus", {3, 1}, {8 * kGiB, 4 * kGiB})}, kLink),
                             DividedModel(), MakeRequest(v1::PLAN_GOAL_LATENCY, 4096));
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  bool said = false;
  for (const std::string& why : plan->why()) {
    said = said || why.find(
                       "gpus (cuda, 2 x GPU of tests: 75 % of each stage on GPU 4, 25 % of "
                       "each stage on GPU 5) has ") != std::string::npos;
  }
  EXPECT_TRUE(said) << plan->DebugString();
}

}  // namespace
}  // namespace strata
