#include "coordinator/planner/planner.h"

#include <set>
#include <string>
#include <vector>

#include "common/footprint/footprint.h"
#include "common/status.h"
#include "common/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using testing::ExpectValid;
using ::testing::HasSubstr;
using testing::kGiB;
using testing::kMiB;
using testing::MakeCluster;
using testing::MakeModel;
using testing::MakeNode;
using testing::MakeRequest;
using ::testing::Not;

// Ten layers of about 24 MiB.
PlannerModel Small() { return MakeModel(10, 1024, 2816, 16, 4, 8000); }

PlannerCluster ThreeNodes() {
  return MakeCluster(
      {MakeNode("a", kGiB, 20, 100), MakeNode("b", kGiB, 10, 100), MakeNode("c", kGiB, 5, 100)},
      {0.2, 1e8});
}

void AddPin(PlannerRequest* request, const std::string& node, uint32_t first, uint32_t last) {
  auto* pin = request->options.add_layers();
  pin->set_node(node);
  pin->set_first_layer(first);
  pin->set_last_layer(last);
}

void ExpectRefused(const PlannerCluster& cluster, const PlannerRequest& request,
                   absl::StatusCode code, const std::string& saying) {
  const auto plan = MakePlan(cluster, Small(), request);
  EXPECT_EQ(plan.status().code(), code) << Describe(plan.status());
  EXPECT_THAT(Describe(plan.status()), HasSubstr(saying));
}

TEST(MakePlan, OneNodeThatFitsTheModelTakesAllForOneStream) {
  const auto request = MakeRequest(v1::PLAN_GOAL_UNSPECIFIED, 4096, 2);
  const auto plan = MakePlan(ThreeNodes(), Small(), request);
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  ExpectValid(ThreeNodes(), Small(), request, *plan);
  ASSERT_EQ(plan->pipelines(0).stages_size(), 1);
  const v1::PlanStage& stage = plan->pipelines(0).stages(0);
  EXPECT_EQ(stage.ranks(0).node(), "a");
  EXPECT_EQ(stage.ranks(0).device(), "cpu");
  EXPECT_EQ(stage.kv_pages(0), 4096u / 16 + 2);
  EXPECT_EQ(plan->goal(), v1::PLAN_GOAL_LATENCY);
  EXPECT_EQ(plan->limiting_node(), "a");
  EXPECT_EQ(plan->numerics_class().name(), "cpu-2/w=bf16,head=bf16,act=f32/kv=f16");
  EXPECT_EQ(plan->lower_bound_gap(), 0);
}

TEST(MakePlan, KvTokensRoundUpToPages) {
  const auto plan = MakePlan(ThreeNodes(), Small(), MakeRequest(v1::PLAN_GOAL_LATENCY, 4097, 1));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->pipelines(0).stages(0).kv_pages(0), 257u + 1);
  EXPECT_EQ(plan->pipelines(0).kv_tokens(), 4097u);
}

TEST(MakePlan, ThroughputSpreadsByMeasuredSpeed) {
  const auto request = MakeRequest(v1::PLAN_GOAL_THROUGHPUT, 4096);
  const auto plan = MakePlan(ThreeNodes(), Small(), request);
  ASSERT_TRUE(plan.ok());
  ExpectValid(ThreeNodes(), Small(), request, *plan);
  EXPECT_EQ(plan->pipelines(0).stages_size(), 3);
  const auto alone = MakePlan(ThreeNodes(), Small(), MakeRequest(v1::PLAN_GOAL_LATENCY, 4096));
  EXPECT_GT(plan->predicted_tokens_per_s(), alone->predicted_tokens_per_s());
}

TEST(MakePlan, OnlyNamedNodesAreUsed) {
  auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
  request.options.add_nodes("c");
  const auto plan = MakePlan(ThreeNodes(), Small(), request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->pipelines(0).stages(0).ranks(0).node(), "c");
  request.options.add_nodes("d");
  ExpectRefused(ThreeNodes(), request, absl::StatusCode::kNotFound, "there is no ready node 'd'");
}

// Two nodes, the first of which computes as MLX does.
PlannerCluster TwoKinds(uint64_t free_bytes, double gigabytes_per_s_of_the_other) {
  PlannerCluster cluster =
      MakeCluster({MakeNode("mac", free_bytes, 50, 4000),
                   MakeNode("box", free_bytes, gigabytes_per_s_of_the_other, 4000)},
                  {0.01, 1e10});
  cluster.nodes[0].numerics = "mlx-1";
  return cluster;
}

std::string ClassOn(const PlannerCluster& cluster, const PlannerRequest& request,
                    const PlannerModel& model = Small()) {
  const auto plan = MakePlan(cluster, model, request);
  EXPECT_TRUE(plan.ok()) << Describe(plan.status());
  if (!plan.ok()) {
    return "";
  }
  ExpectValid(cluster, model, request, *plan);
  return plan->numerics_class().name();
}

TEST(MakePlan, KindsAreMixedWhereNoneAloneHasRoom) {
  const auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 256);
  const PlannerCluster small = TwoKinds(240 * kMiB, 50);
  const auto plan = MakePlan(small, Small(), request);
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  ExpectValid(small, Small(), request, *plan);
  ASSERT_EQ(plan->pipelines(0).stages_size(), 2);
  EXPECT_THAT(plan->numerics_class().name(),
              ::testing::MatchesRegex("(mlx-1|cpu-2):0-[0-8].(mlx-1|cpu-2):[1-9]-9/w=bf16,.*"));
  EXPECT_THAT(plan->why(), ::testing::Contains(HasSubstr("nodes of one kind alone have no room")));
  // With room on one node nothing is mixed.
  EXPECT_THAT(ClassOn(TwoKinds(kGiB, 40), request), HasSubstr("mlx-1/"));
  // Neither kind lacks as much as both together do.
  const auto none = MakePlan(TwoKinds(100 * kMiB, 50), Small(), request);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("2 nodes have"));
}

TEST(MakePlan, KindsAreMixedWhereThatIsAFifthBetter) {
  const auto request = MakeRequest(v1::PLAN_GOAL_THROUGHPUT, 256);
  // Half of the layers each take half of the time.
  const auto plan = MakePlan(TwoKinds(kGiB, 50), Small(), request);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->numerics_class().name(), HasSubstr("mlx-1:"));
  EXPECT_THAT(plan->why(), ::testing::Contains(HasSubstr("times as good as nodes of one kind")));
  const PlannerCluster slow = TwoKinds(kGiB, 5);
  EXPECT_THAT(ClassOn(slow, request), HasSubstr("mlx-1/"));
  const auto alone = MakePlan(slow, Small(), request);
  EXPECT_THAT(alone->why(), ::testing::Contains(
                                HasSubstr("Node box is left out: it computes as cpu-2, and mixing "
                                          "numerics gains too little")));
}

TEST(MakePlan, AMixTakesNoInt8ActivationsAwayWhereAKindAloneHasRoom) {
  auto request = MakeRequest(v1::PLAN_GOAL_THROUGHPUT, 256);
  request.options.set_activations(v1::ACTIVATIONS_INT8);
  request.activations_by_default = true;
  PlannerModel model = Small();
  model.activations = "int8";
  EXPECT_THAT(ClassOn(TwoKinds(kGiB, 50), request, model), ::testing::Not(HasSubstr("+")));
  EXPECT_THAT(ClassOn(TwoKinds(240 * kMiB, 50), request, model), HasSubstr(",act=f32/"));
}

TEST(MakePlan, WeightsCountAsTheKindOfDeviceKeepsThem) {
  const auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 256);
  PlannerModel model = Small();
  model.on_mlx = PlannerWeights{.layer_bytes = model.layer_bytes,
                                .layer_read_bytes = model.layer_bytes,
                                .embed_bytes = 2 * model.embed_bytes,
                                .head_bytes = 2 * model.head_bytes};
  for (uint64_t& bytes : model.on_mlx->layer_bytes) bytes *= 2;
  model.on_mlx->layer_read_bytes = model.on_mlx->layer_bytes;
  PlannerCluster cluster = TwoKinds(4 * kGiB, 40);
  const auto weight_bytes = [&](const char* device) {
    cluster.nodes[0].device = device;
    PlannerRequest pinned = request;
    AddPin(&pinned, "mac", 0, 9);
    const auto plan = MakePlan(cluster, model, pinned);
    EXPECT_TRUE(plan.ok()) << Describe(plan.status());
    return plan.ok() ? plan->pipelines(0).stages(0).weight_bytes() : 0;
  };
  EXPECT_EQ(weight_bytes("mlx"), 2 * weight_bytes("cpu"));
  // Twice the bytes take twice the time: the slower box is the faster one then.
  cluster.nodes[0].device = "mlx";
  const auto plan = MakePlan(cluster, model, request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->pipelines(0).stages(0).ranks(0).node(), "box");
}

TEST(MakePlan, PinnedLayersAreTheWholePlacement) {
  auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
  AddPin(&request, "a", 7, 9);
  AddPin(&request, "c", 0, 6);
  const auto plan = MakePlan(ThreeNodes(), Small(), request);
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  ExpectValid(ThreeNodes(), Small(), request, *plan);
  ASSERT_EQ(plan->pipelines(0).stages_size(), 2);
  EXPECT_EQ(plan->pipelines(0).stages(0).ranks(0).node(), "c");
  EXPECT_EQ(plan->pipelines(0).stages(1).first_layer(), 7u);
  EXPECT_EQ(plan->limiting_node(), "c");
  EXPECT_GT(plan->lower_bound_gap(), 0);  // The fast node could hold more.
}

TEST(MakePlan, PinnedCapacityFillsThePinnedNodes) {
  auto request = MakeRequest(v1::PLAN_GOAL_CAPACITY, 4096);
  AddPin(&request, "a", 0, 7);
  AddPin(&request, "b", 8, 9);
  const auto plan = MakePlan(ThreeNodes(), Small(), request);
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  ExpectValid(ThreeNodes(), Small(), request, *plan);
  EXPECT_GT(plan->pipelines(0).kv_tokens(), 4096u);
  EXPECT_EQ(plan->limiting_node(), "a");
}

TEST(MakePlan, PinsThatDoNotCoverTheLayersAreRefused) {
  const auto with = [](const std::vector<std::tuple<std::string, uint32_t, uint32_t>>& pins) {
    auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
    for (const auto& [node, first, last] : pins) {
      AddPin(&request, node, first, last);
    }
    return request;
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused(ThreeNodes(), with({{"a", 0, 8}}), invalid, "layers 9-9 are on no node");
  ExpectRefused(ThreeNodes(), with({{"a", 1, 9}}), invalid, "layers 0-0 are on no node");
  ExpectRefused(ThreeNodes(), with({{"a", 0, 3}, {"b", 5, 9}}), invalid,
                "layers 4-4 are on no node");
  ExpectRefused(ThreeNodes(), with({{"a", 0, 5}, {"b", 5, 9}}), invalid, "layer 5 is on two nodes");
  ExpectRefused(ThreeNodes(), with({{"a", 0, 10}}), invalid, "are not in 0-9");
  ExpectRefused(ThreeNodes(), with({{"a", 3, 2}}), invalid, "are not in 0-9");
  ExpectRefused(ThreeNodes(), with({{"a", 0, 4294967295u}}), invalid, "are not in 0-9");
  ExpectRefused(ThreeNodes(), with({{"a", 0, 3}, {"b", 4, 6}, {"a", 7, 9}}), invalid,
                "node a has two ranges");
  ExpectRefused(ThreeNodes(), with({{"x", 0, 9}}), absl::StatusCode::kNotFound, "'x'");
  auto outside = with({{"a", 0, 9}});
  outside.options.add_nodes("b");
  ExpectRefused(ThreeNodes(), outside, invalid, "not among --nodes");
}

TEST(MakePlan, PinsMayMixKinds) {
  PlannerCluster mixed = ThreeNodes();
  mixed.nodes[1].numerics = "mlx-1.cpu.0.32.4";
  auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
  AddPin(&request, "a", 0, 5);
  AddPin(&request, "b", 6, 8);
  AddPin(&request, "c", 9, 9);
  EXPECT_EQ(ClassOn(mixed, request),
            "cpu-2:0-5+mlx-1.cpu.0.32.4:6-8+cpu-2:9-9/w=bf16,head=bf16,act=f32/kv=f16");
}

TEST(MakePlan, NodesThatTakeFloatActivationsAloneAreLeftOutWhereInt8IsAskedFor) {
  PlannerCluster cluster = ThreeNodes();
  cluster.nodes[0].numerics = "mlx-1.cpu.0.32.4";
  auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 256);
  request.options.set_activations(v1::ACTIVATIONS_INT8);
  const auto plan = MakePlan(cluster, Small(), request);
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  EXPECT_THAT(plan->numerics_class().name(), HasSubstr("cpu-2/"));
  EXPECT_THAT(plan->why(), ::testing::Contains(HasSubstr("Node a is left out: it computes as "
                                                         "mlx-1.cpu.0.32.4, with float32")));

  auto named = request;
  named.options.add_nodes("a");
  ExpectRefused(cluster, named, absl::StatusCode::kFailedPrecondition, "float32 activations alone");
  // As a default it is float32 there.
  named.activations_by_default = true;
  PlannerModel model = Small();
  model.activations = "int8";
  const auto floats = MakePlan(cluster, model, named);
  ASSERT_TRUE(floats.ok()) << Describe(floats.status());
  EXPECT_THAT(floats->numerics_class().name(), HasSubstr(",act=f32/"));

  auto pinned = request;
  AddPin(&pinned, "a", 0, 9);
  ExpectRefused(cluster, pinned, absl::StatusCode::kFailedPrecondition, "node a computes with");
}

TEST(MakePlan, PinsThatDoNotFitNameNodeAndMissingBytes) {
  PlannerCluster cluster = ThreeNodes();
  cluster.nodes[1].free_bytes = 100 * kMiB;
  auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
  AddPin(&request, "a", 0, 4);
  AddPin(&request, "b", 5, 9);
  const auto plan = MakePlan(cluster, Small(), request);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  const v1::ErrorDetail detail = DetailOf(plan.status());
  EXPECT_EQ(detail.node(), "b");
  EXPECT_EQ(detail.limit(), "free_bytes=104857600");
  // Exactly as much is missing: with it the plan is made, with a byte less it is not.
  const uint64_t missing = std::stoull(detail.facts().at("missing_bytes"));
  cluster.nodes[1].free_bytes += missing;
  EXPECT_TRUE(MakePlan(cluster, Small(), request).ok());
  cluster.nodes[1].free_bytes -= 1;
  EXPECT_FALSE(MakePlan(cluster, Small(), request).ok());
}

// A GPU with plenty of memory, in a host that has `host_bytes` free, beside a CPU that holds half.
PlannerCluster GpuAndCpu(uint64_t host_bytes) {
  PlannerCluster cluster = MakeCluster(
      {MakeNode("gpu", 80 * kGiB, 2000, 50000), MakeNode("cpu", 350 * kMiB, 10, 100)}, {0.2, 1e9});
  cluster.nodes[0].device = "cuda";
  cluster.nodes[0].host_free_bytes = host_bytes;
  return cluster;
}

TEST(MakePlan, AGpusHostPacksALayerAtATimeAndHasTheMemoryForIt) {
  const PlannerModel model = Small();
  const auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
  const uint64_t needed = CudaFootprint().HostBytes(model.spec, request.options.max_batch_tokens(),
                                                    true, request.options.context()) +
                          StagedBytes(model, 0, 10);
  const auto fits = MakePlan(GpuAndCpu(needed), model, request);
  ASSERT_TRUE(fits.ok()) << Describe(fits.status());
  ASSERT_EQ(fits->pipelines(0).stages_size(), 1);
  EXPECT_EQ(fits->pipelines(0).stages(0).ranks(0).node(), "gpu");
  EXPECT_THAT(fits->why(), ::testing::Contains(
                               HasSubstr("and of the host's memory " + FormatSize(needed) + " of " +
                                         FormatSize(needed) + " are taken while it loads")));

  PlannerCluster alone = GpuAndCpu(needed - 1);
  alone.nodes.pop_back();
  alone.links = MakeCluster(alone.nodes, {0.2, 1e9}).links;
  const auto refused = MakePlan(alone, model, request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const v1::ErrorDetail detail = DetailOf(refused.status());
  EXPECT_EQ(detail.reason(), "MODEL_DOES_NOT_FIT");
  EXPECT_EQ(detail.node(), "gpu");
  EXPECT_EQ(detail.limit(), "host_free_bytes=" + std::to_string(needed - 1));
  EXPECT_EQ(detail.facts().at("missing_bytes"), "1");
  EXPECT_THAT(detail.hint(), HasSubstr("--host-memory"));

  auto pinned = request;
  AddPin(&pinned, "gpu", 0, 9);
  EXPECT_EQ(DetailOf(MakePlan(GpuAndCpu(needed - 1), model, pinned).status()).limit(),
            "host_free_bytes=" + std::to_string(needed - 1));
  EXPECT_TRUE(MakePlan(GpuAndCpu(needed), model, pinned).ok());
}

TEST(MakePlan, AGpuWhoseHostCannotPackOneLayerIsLeftOutAndSaysWhy) {
  PlannerCluster cluster = GpuAndCpu(kMiB);
  cluster.nodes[1].free_bytes = kGiB;
  const auto plan = MakePlan(cluster, Small(), MakeRequest(v1::PLAN_GOAL_LATENCY, 4096));
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  ASSERT_EQ(plan->pipelines(0).stages_size(), 1);
  EXPECT_EQ(plan->pipelines(0).stages(0).ranks(0).node(), "cpu");
  EXPECT_THAT(plan->why(), ::testing::Contains(HasSubstr("Node gpu is left out: of the host's "
                                                         "memory 1.0 MiB of --host-memory")));
}

// The end that the host cannot stage goes to the other node.
TEST(MakePlan, AHeadThatIsTooLargeForAGpusHostIsPlacedElsewhere) {
  PlannerModel model = Small();
  model.head_bytes = 200 * kMiB;
  const auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 4096);
  PlannerCluster cluster = GpuAndCpu(kGiB);
  cluster.nodes[1].free_bytes = 600 * kMiB;
  ASSERT_EQ(MakePlan(cluster, model, request)->pipelines(0).stages_size(), 1);
  cluster.nodes[0].host_free_bytes =
      CudaFootprint().HostBytes(model.spec, request.options.max_batch_tokens(), false,
                                request.options.context()) +
      StagedBytes(model, 0, 9);
  const auto plan = MakePlan(cluster, model, request);
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  ASSERT_EQ(plan->pipelines(0).stages_size(), 2);
  EXPECT_EQ(plan->pipelines(0).stages(0).ranks(0).node(), "gpu");
  EXPECT_EQ(plan->pipelines(0).stages(1).ranks(0).node(), "cpu");
}

TEST(StagedBytes, AreNoLessThanAWorkerCounts) {
  PlannerModel model = MakeModel(4, 64, 128, 4, 4, 100);
  model.layer_bytes = {100, 400, 200, 300};
  model.layer_source_bytes = {10, 70, 20, 30};
  model.embed_bytes = 1000;
  model.end_source_bytes = 50;
  for (const bool tied : {false, true}) {
    model.spec.tied_head = tied;
    model.head_bytes = tied ? 1004 : 2004;  // With the last norm.
    for (uint32_t begin = 0; begin < 4; ++begin) {
      for (uint32_t end = begin + 1; end <= 4; ++end) {
        StagedWeights staged;
        const auto add = [&](const std::string& name, uint64_t source, uint64_t bytes) {
          staged.Add({.name = name, .shape = {16, 16}}, Dtype::kBF16, source, bytes);
        };
        for (uint32_t layer = begin; layer < end; ++layer) {
          add("model.layers." + std::to_string(layer) + ".mlp.up_proj.weight",
              model.layer_source_bytes[layer], model.layer_bytes[layer]);
        }
        if (begin == 0 || (tied && end == 4)) {
          add("model.embed_tokens.weight", 50, 1000);
        }
        if (end == 4) {
          add("model.norm.weight", 4, 4);
          if (!tied) {
            add("lm_head.weight", 50, 2000);
          }
        }
        const uint64_t planned = StagedBytes(model, begin, end);
        EXPECT_GE(planned, staged.MostBytes()) << begin << "-" << end << (tied ? ", tied" : "");
        EXPECT_LE(planned, staged.MostBytes() + 400) << "a layer more at most";
      }
    }
  }
}

TEST(MakePlan, WhatNeverFitsNamesTheMissingBytesAndWhatWouldFit) {
  PlannerCluster cluster = ThreeNodes();
  const auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 1'000'000);
  const auto plan = MakePlan(cluster, Small(), request);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  const v1::ErrorDetail detail = DetailOf(plan.status());
  EXPECT_EQ(detail.reason(), "MODEL_DOES_NOT_FIT");
  EXPECT_THAT(detail.hint(), HasSubstr("--kv-tokens ("));
  const uint64_t missing = std::stoull(detail.facts().at("missing_bytes"));
  EXPECT_GT(missing, 0u);
  // Both the missing bytes and the tokens that would fit are exact.
  PlannerCluster larger = cluster;
  larger.nodes[0].free_bytes += missing;
  EXPECT_TRUE(MakePlan(larger, Small(), request).ok());
  larger.nodes[0].free_bytes -= 1;
  EXPECT_FALSE(MakePlan(larger, Small(), request).ok());
  const size_t at = detail.hint().find("--kv-tokens (") + std::string("--kv-tokens (").size();
  const uint64_t tokens = std::stoull(detail.hint().substr(at));
  EXPECT_TRUE(MakePlan(cluster, Small(), MakeRequest(v1::PLAN_GOAL_LATENCY, tokens)).ok());
  EXPECT_FALSE(MakePlan(cluster, Small(), MakeRequest(v1::PLAN_GOAL_LATENCY, tokens + 1)).ok());
}

TEST(MakePlan, WeightsThatFitNowhereSaySo) {
  PlannerCluster cluster = ThreeNodes();
  for (PlannerNode& node : cluster.nodes) {
    node.free_bytes = 40 * kMiB;
  }
  ExpectRefused(cluster, MakeRequest(v1::PLAN_GOAL_CAPACITY, 16),
                absl::StatusCode::kResourceExhausted, "the weights alone do not fit");
  ExpectRefused(MakeCluster({}, {}), MakeRequest(v1::PLAN_GOAL_LATENCY, 16),
                absl::StatusCode::kResourceExhausted, "no ready node");
  ExpectRefused(ThreeNodes(), MakeRequest(v1::PLAN_GOAL_LATENCY, ~uint64_t{0}),
                absl::StatusCode::kResourceExhausted, "lower --kv-tokens");
}

TEST(MakePlan, WeightsAreBlamedOnlyWhereTheyDoNotFit) {
  std::set<std::string> seen;
  for (uint64_t mib = 40; mib < 400; mib += 5) {
    PlannerCluster cluster = ThreeNodes();
    for (PlannerNode& node : cluster.nodes) {
      node.free_bytes = mib * kMiB;
    }
    const auto plan = MakePlan(cluster, Small(), MakeRequest(v1::PLAN_GOAL_LATENCY, 16));
    if (plan.ok()) {
      break;
    }
    const v1::ErrorDetail detail = DetailOf(plan.status());
    const uint64_t weights = std::stoull(detail.facts().at("weight_bytes"));
    const uint64_t buffers = std::stoull(detail.facts().at("buffer_bytes"));
    const uint64_t free = 3 * mib * kMiB;
    const std::string saying = weights > free             ? "the weights alone do not fit"
                               : weights + buffers > free ? "of buffers that computing takes"
                                                          : "";
    EXPECT_THAT(detail.hint(), HasSubstr(saying)) << mib;
    if (weights <= free) {
      EXPECT_THAT(detail.hint(), Not(HasSubstr("the weights alone do not fit"))) << mib;
    }
    EXPECT_THAT(detail.message(), HasSubstr(FormatSize(buffers) + " of buffers"));
    seen.insert(saying);
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(MakePlan, EveryGroupOfAStageGetsItsPages) {
  PlannerModel model = Small();
  model.spec.kv_groups = {{KvKind::kFull, 0}, {KvKind::kWindow, 512}};
  for (uint32_t l = 5; l < 10; ++l) {
    model.spec.layers[l].attention.kv_group = 1;
  }
  auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 1600);
  AddPin(&request, "a", 0, 4);
  AddPin(&request, "b", 5, 9);
  const auto plan = MakePlan(ThreeNodes(), model, request);
  ASSERT_TRUE(plan.ok()) << Describe(plan.status());
  const auto& stages = plan->pipelines(0).stages();
  EXPECT_THAT(stages[0].kv_pages(), ::testing::ElementsAre(101, 0));
  // What the one session's window and the tokens in flight over two stages take.
  EXPECT_EQ(MostKvPages(model.spec.kv_groups[1], 1600, KvRowsInFlight(2, 256)), 81u);
  EXPECT_THAT(stages[1].kv_pages(), ::testing::ElementsAre(0, 81));
}

TEST(MakePlan, AMixturesTimeIsThatOfTheExpertsATokenReads) {
  const auto plan_of = [](const PlannerModel& model) {
    const auto plan = MakePlan(ThreeNodes(), model, MakeRequest(v1::PLAN_GOAL_LATENCY, 1600));
    EXPECT_TRUE(plan.ok()) << Describe(plan.status());
    return plan->pipelines(0).stages();
  };
  PlannerModel model = Small();
  const auto dense = plan_of(model);
  // As much to read, of weights that take more memory.
  model.layer_read_bytes = model.layer_bytes;
  for (uint64_t& bytes : model.layer_bytes) {
    bytes += bytes / 8;
  }
  const auto mixture = plan_of(model);
  ASSERT_EQ(mixture.size(), dense.size());
  EXPECT_EQ(mixture[0].predicted_ms(), dense[0].predicted_ms());
  EXPECT_GT(mixture[0].weight_bytes(), dense[0].weight_bytes());
}

TEST(StageOverhead, CountsTheRowsOfAllExpertsOfARow) {
  ModelSpec spec = Small().spec;
  const uint64_t dense = CpuFootprint().BufferBytes(spec, 256, false, 4096);
  for (LayerSpec& layer : spec.layers) {
    layer.mlp.experts = 16;
    layer.mlp.router.used = 4;
  }
  // Of four in place of one: inputs of products, gate, up, and what experts give.
  EXPECT_GE(CpuFootprint().BufferBytes(spec, 256, false, 4096) - dense,
            uint64_t{4} * 256 * (3 * 2816 + 3 * 2 * 2816 + 4 * 1024));
}

TEST(StageOverhead, GrowsWithBatchHeadAndContext) {
  const ModelSpec spec = Small().spec;
  const uint64_t base = CpuFootprint().BufferBytes(spec, 256, false, 4096);
  EXPECT_GT(CpuFootprint().BufferBytes(spec, 512, false, 4096), base);
  EXPECT_GT(CpuFootprint().BufferBytes(spec, 256, false, 8192), base);
  // Logits of the most rows, and the frame that carries them.
  EXPECT_GE(CpuFootprint().BufferBytes(spec, 256, true, 4096), base + uint64_t{2} * 4 * 256 * 8000);
  // At least residual stream, norm, q, k, v, attention, gate and up of every row.
  EXPECT_GE(base, uint64_t{4} * 256 * (4 * 1024 + 2 * 256 + 2 * 2816));
}

}  // namespace
}  // namespace strata
