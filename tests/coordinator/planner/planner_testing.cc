#include "tests/coordinator/planner/planner_testing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "common/footprint/footprint.h"
#include "common/model/numerics_class.h"
#include "gtest/gtest.h"

namespace strata::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Stage {
  size_t node;
  uint32_t begin;
  uint32_t end;
};

uint64_t PageBytes(const PlannerModel& model, uint32_t layer) {
  const AttentionSpec& a = model.spec.layers[layer].attention;
  return uint64_t{2} * a.kv_heads * a.head_dim * model.kv_element_bytes * 16;
}

// The time model, written anew: the larger of reading and computing, KV at half of the context.
double StageMs(const PlannerCluster& cluster, const PlannerModel& model,
               const PlannerRequest& request, const Stage& stage) {
  const PlannerNode& node = cluster.nodes[stage.node];
  const double keys = request.options.context() / 2.0;
  double ms = 0;
  for (uint32_t l = stage.begin; l < stage.end; ++l) {
    const AttentionSpec& a = model.spec.layers[l].attention;
    const double bytes = static_cast<double>(model.layer_bytes[l]) +
                         keys * static_cast<double>(PageBytes(model, l)) / 16;
    const double flops = model.layer_flops[l] + keys * 4.0 * a.heads * a.head_dim;
    ms += 1e3 * std::max(bytes / node.read_bytes_per_s, flops / node.flops_per_s);
  }
  if (stage.begin == 0) {
    ms += 1e3 * static_cast<double>(model.embed_bytes) / model.spec.vocab / node.read_bytes_per_s;
  }
  if (stage.end == model.spec.layers.size()) {
    ms += 1e3 * std::max(static_cast<double>(model.head_bytes) / node.read_bytes_per_s,
                         model.head_flops / node.flops_per_s);
  }
  return ms;
}

// Bytes of a stage without KV.
uint64_t FixedBytes(const PlannerModel& model, const PlannerRequest& request, const Stage& stage) {
  const bool heads = stage.end == model.spec.layers.size();
  uint64_t bytes = CpuFootprint().BufferBytes(model.spec, request.options.max_batch_tokens(), heads,
                                              request.options.context()) +
                   (stage.begin == 0 ? model.embed_bytes : 0) + (heads ? model.head_bytes : 0);
  for (uint32_t l = stage.begin; l < stage.end; ++l) {
    bytes += model.layer_bytes[l];
  }
  return bytes;
}

uint64_t PageBytes(const PlannerModel& model, const Stage& stage) {
  uint64_t bytes = 0;
  for (uint32_t l = stage.begin; l < stage.end; ++l) {
    bytes += PageBytes(model, l);
  }
  return bytes;
}

uint64_t WantedPages(const PlannerRequest& request) {
  return (request.options.kv_tokens() + 15) / 16 + request.options.sessions();
}

// The measure of stages, as large as it can be for capacity; infinity (or -1) if they do not fit.
double Measure(const PlannerCluster& cluster, const PlannerModel& model,
               const PlannerRequest& request, const std::vector<Stage>& stages) {
  const size_t coordinator = cluster.nodes.size();
  const auto hop = [&](size_t from, size_t to, double* transfer) {
    const PlannerLink& link = cluster.links[from][to];
    const double bytes = from == coordinator || to == coordinator ? 256 : model.spec.hidden * 4.0;
    *transfer = std::max(*transfer, 1e3 * bytes / link.bytes_per_s);
    return link.latency_ms + 1e3 * bytes / link.bytes_per_s;
  };
  double latency = 0;
  double slowest = 0;
  uint64_t pages = uint64_t{1} << 31;
  size_t at = coordinator;
  for (const Stage& stage : stages) {
    const uint64_t fixed = FixedBytes(model, request, stage);
    const uint64_t free = cluster.nodes[stage.node].free_bytes;
    pages = free < fixed ? 0 : std::min(pages, (free - fixed) / PageBytes(model, stage));
    latency += hop(at, stage.node, &slowest);
    const double ms = StageMs(cluster, model, request, stage);
    latency += ms;
    slowest = std::max(slowest, ms);
    at = stage.node;
  }
  latency += hop(at, coordinator, &slowest);
  const bool fits = pages >= WantedPages(request);
  switch (request.options.goal()) {
    case v1::PLAN_GOAL_CAPACITY:
      return fits ? static_cast<double>(pages) : -1;
    case v1::PLAN_GOAL_THROUGHPUT:
      return fits ? slowest : kInfinity;
    default:
      return fits ? latency : kInfinity;
  }
}

std::vector<Stage> StagesOf(const PlannerCluster& cluster, const v1::Plan& plan) {
  std::map<std::string, size_t> names;
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    names[cluster.nodes[i].name] = i;
  }
  std::vector<Stage> stages;
  for (const auto& stage : plan.pipelines(0).stages()) {
    stages.push_back(
        {names.at(stage.ranks(0).node()), stage.first_layer(), stage.last_layer() + 1});
  }
  return stages;
}

class Enumeration {
 public:
  Enumeration(const PlannerCluster& cluster, const PlannerModel& model,
              const PlannerRequest& request)
      : cluster_(cluster), model_(model), request_(request) {}

  std::optional<double> Run() {
    Extend();
    return best_;
  }

 private:
  void Extend() {
    const auto layers = static_cast<uint32_t>(model_.spec.layers.size());
    const uint32_t begin = stages_.empty() ? 0 : stages_.back().end;
    if (begin == layers) {
      Offer(Measure(cluster_, model_, request_, stages_));
      return;
    }
    for (size_t node = 0; node < cluster_.nodes.size(); ++node) {
      const bool used = std::any_of(stages_.begin(), stages_.end(),
                                    [node](const Stage& stage) { return stage.node == node; });
      for (uint32_t end = begin + 1; !used && end <= layers; ++end) {
        stages_.push_back({node, begin, end});
        Extend();
        stages_.pop_back();
      }
    }
  }

  void Offer(double measure) {
    const bool most = request_.options.goal() == v1::PLAN_GOAL_CAPACITY;
    if (most ? measure < 0 : measure == kInfinity) {
      return;
    }
    if (!best_ || (most ? measure > *best_ : measure < *best_)) {
      best_ = measure;
    }
  }

  const PlannerCluster& cluster_;
  const PlannerModel& model_;
  const PlannerRequest& request_;
  std::vector<Stage> stages_;
  std::optional<double> best_;
};

}  // namespace

PlannerModel MakeModel(uint32_t layers, uint32_t hidden, uint32_t ffn, uint32_t heads,
                       uint32_t kv_heads, uint32_t vocab) {
  PlannerModel model;
  model.spec.family = "llama";
  model.spec.hidden = hidden;
  model.spec.vocab = vocab;
  model.spec.context = 8192;
  model.spec.kv_groups = {{}};
  LayerSpec layer;
  layer.attention.heads = heads;
  layer.attention.kv_heads = kv_heads;
  layer.attention.head_dim = hidden / heads;
  layer.attention.rope.rotary_dim = hidden / heads;
  layer.mlp.ffn = ffn;
  model.spec.layers.assign(layers, layer);
  const double weights =
      2.0 * hidden * hidden + 2.0 * hidden * kv_heads * (hidden / heads) + 3.0 * hidden * ffn;
  model.layer_bytes.assign(layers, static_cast<uint64_t>(2 * weights));
  model.layer_flops.assign(layers, 2 * weights);
  model.embed_bytes = model.head_bytes = uint64_t{2} * hidden * vocab;
  model.head_flops = 2.0 * hidden * vocab;
  model.weight_format = model.head_format = "bf16";
  model.activations = "f32";
  model.kv_format = "f16";
  model.of_rank = [layer_bytes = model.layer_bytes, embed_bytes = model.embed_bytes,
                   head_bytes = model.head_bytes](const std::vector<OutputRange>& shares,
                                                  size_t rank) {
    const auto part = [&](uint64_t bytes) { return bytes * shares[rank].size() / kShareParts; };
    PlannerWeights weights;
    for (const uint64_t bytes : layer_bytes) {
      weights.layer_bytes.push_back(part(bytes));
    }
    weights.layer_read_bytes = weights.layer_bytes;
    weights.embed_bytes = rank == 0 ? embed_bytes : 0;
    weights.head_bytes = part(head_bytes);
    return weights;
  };
  return model;
}

PlannerNode MakeNode(std::string name, uint64_t free_bytes, double gigabytes_per_s,
                     double gigaflops_per_s) {
  PlannerNode node;
  node.name = std::move(name);
  node.incarnation = 7;
  node.numerics = "cpu-2";
  node.free_bytes = free_bytes;
  node.read_bytes_per_s = gigabytes_per_s * 1e9;
  node.flops_per_s = gigaflops_per_s * 1e9;
  node.ranks = true;
  return node;
}

PlannerCluster MakeCluster(std::vector<PlannerNode> nodes, PlannerLink link) {
  PlannerCluster cluster;
  cluster.nodes = std::move(nodes);
  cluster.links.assign(cluster.nodes.size() + 1,
                       std::vector<PlannerLink>(cluster.nodes.size() + 1, link));
  for (size_t i = 0; i <= cluster.nodes.size(); ++i) {
    cluster.links[i][i] = {0, 1e12};
  }
  return cluster;
}

PlannerRequest MakeRequest(v1::PlanGoal goal, uint64_t kv_tokens, uint32_t sessions) {
  PlannerRequest request;
  request.options.set_goal(goal);
  request.options.set_context(4096);
  request.options.set_sessions(sessions);
  request.options.set_kv_tokens(kv_tokens);
  request.options.set_max_batch_tokens(256);
  request.options.set_ranks(1);
  return request;
}

void ExpectValid(const PlannerCluster& cluster, const PlannerModel& model,
                 const PlannerRequest& request, const v1::Plan& plan) {
  ASSERT_EQ(plan.pipelines_size(), 1);
  const auto& pipeline = plan.pipelines(0);
  const std::vector<Stage> stages = StagesOf(cluster, plan);
  ASSERT_FALSE(stages.empty());
  EXPECT_EQ(plan.epoch(), 0u);
  EXPECT_GE(pipeline.kv_tokens(), request.options.kv_tokens());
  uint32_t next = 0;
  double sum_ms = 0;
  std::set<size_t> used;
  std::vector<LayerNumerics> kinds;
  for (size_t i = 0; i < stages.size(); ++i) {
    const v1::PlanStage& out = pipeline.stages(static_cast<int>(i));
    const PlannerNode& node = cluster.nodes[stages[i].node];
    EXPECT_EQ(stages[i].begin, next);
    EXPECT_GT(stages[i].end, stages[i].begin);
    next = stages[i].end;
    EXPECT_TRUE(used.insert(stages[i].node).second) << node.name << " twice";
    ASSERT_EQ(out.ranks_size(), 1);
    EXPECT_EQ(out.ranks(0).incarnation(), node.incarnation);
    EXPECT_EQ(out.ranks(0).share_begin(), 0u);
    EXPECT_EQ(out.ranks(0).share_end(), 65536u);
    kinds.push_back({node.numerics, stages[i].begin, stages[i].end - 1});
    ASSERT_EQ(out.kv_pages_size(), 1);
    EXPECT_EQ(out.kv_pages(0), pipeline.stages(0).kv_pages(0));
    EXPECT_GE(out.kv_pages(0), WantedPages(request));
    if (request.options.goal() != v1::PLAN_GOAL_CAPACITY) {
      EXPECT_EQ(out.kv_pages(0), WantedPages(request));
    }
    EXPECT_EQ(out.kv_bytes(), out.kv_pages(0) * PageBytes(model, stages[i]));
    EXPECT_LE(FixedBytes(model, request, stages[i]) + out.kv_bytes(), node.free_bytes) << node.name;
    sum_ms += out.predicted_ms();
  }
  EXPECT_EQ(next, model.spec.layers.size());
  EXPECT_EQ(plan.numerics_class().name().find(NumericsOfStages(kinds) + "/"), 0u);
  if (request.options.goal() != v1::PLAN_GOAL_THROUGHPUT) {
    EXPECT_NEAR(plan.predicted_tokens_per_s() * sum_ms, 1000, 1e-6);
  }
  EXPECT_FALSE(plan.limiting_node().empty());
  EXPECT_GE(plan.lower_bound_gap(), 0);
  EXPECT_GE(plan.why_size(), 3);
}

double MeasureOf(const PlannerCluster& cluster, const PlannerModel& model,
                 const PlannerRequest& request, const v1::Plan& plan) {
  if (request.options.goal() == v1::PLAN_GOAL_CAPACITY) {
    return static_cast<double>(plan.pipelines(0).stages(0).kv_pages(0));
  }
  return Measure(cluster, model, request, StagesOf(cluster, plan));
}

std::optional<double> BruteForce(const PlannerCluster& cluster, const PlannerModel& model,
                                 const PlannerRequest& request) {
  return Enumeration(cluster, model, request).Run();
}

RandomCase MakeRandomCase(std::mt19937_64* random, uint32_t nodes, uint32_t layers,
                          bool equal_layers, v1::PlanGoal goal) {
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>((*random)() >> 11) * 0x1.0p-53;
  };
  RandomCase c;
  c.model = MakeModel(layers, 512, 1536, 8, 2, 4000);
  if (!equal_layers) {
    for (uint32_t l = 0; l < layers; ++l) {
      c.model.layer_bytes[l] =
          static_cast<uint64_t>(static_cast<double>(c.model.layer_bytes[l]) * between(0.3, 3));
      c.model.layer_flops[l] *= between(0.3, 3);
      c.model.spec.layers[l].attention.kv_heads = 1 << static_cast<int>(between(0, 3.9));
    }
  }
  c.request = MakeRequest(goal, static_cast<uint64_t>(between(1, 9000)),
                          1 + static_cast<uint32_t>(between(0, 4)));
  const uint64_t overhead = CpuFootprint().BufferBytes(c.model.spec, 256, true, 4096);
  const double whole = static_cast<double>(c.model.layer_bytes[0]) * layers * 1.5;
  std::vector<PlannerNode> members;
  for (uint32_t i = 0; i < nodes; ++i) {
    const auto memory = static_cast<uint64_t>(between(0, 1.2) * whole);
    const double gigabytes = between(1, 60);
    const double gigaflops = between(2, 200);
    members.push_back(MakeNode("n" + std::to_string(i), overhead + memory, gigabytes, gigaflops));
  }
  c.cluster = MakeCluster(std::move(members), {});
  const double slow = between(0.01, 1);
  for (auto& row : c.cluster.links) {
    for (PlannerLink& link : row) {
      link = {between(0, slow), between(1e6, 1e8)};
    }
  }
  return c;
}

}  // namespace strata::testing
