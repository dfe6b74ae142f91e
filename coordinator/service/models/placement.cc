#include "coordinator/service/models/placement.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/footprint/footprint.h"
#include "common/footprint/rank_footprint.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/cluster/problem_list.h"
#include "coordinator/deployment/placed_model.h"
#include "coordinator/engine/drafter.h"
#include "coordinator/engine/step_timing.h"
#include "coordinator/planner/rank_comparison.h"
#include "coordinator/planner/replacement.h"
#include "coordinator/service/models/layer_caches.h"
#include "coordinator/service/request/chat_answer.h"

namespace strata {
namespace {

constexpr uint32_t kDefaultSessions = 4;
constexpr uint32_t kMostStandby = 16;

// How large steps are at first, a sentence.
std::string FirstSteps(const v1::Plan& plan, const v1::LoadOptions& options,
                       nanoseconds step_timeout) {
  std::vector<double> predicted_ms;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    predicted_ms.push_back(stage.predicted_ms());
  }
  const StepTiming timing(predicted_ms, step_timeout, options.max_batch_tokens());
  return "a step has " + std::to_string(timing.TokenBudget()) +
         " rows at most to begin with, by the predicted speed, and never more than " +
         std::to_string(options.max_batch_tokens()) +
         " (--max-batch-tokens); then it follows what steps take";
}

// A node of the plan whose disk cannot take its stage's weights, even if they are all that is
// cached there; "": there is none.
std::string NodeWithoutDisk(const PlannerCluster& cluster, const v1::Plan& plan) {
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    for (const v1::PlanRank& rank : stage.ranks()) {
      const uint64_t bytes = stage.ranks_size() > 1 ? rank.weight_bytes() : stage.weight_bytes();
      for (const PlannerNode& node : cluster.nodes) {
        if (node.name == rank.node() && node.cache_bytes < bytes) {
          return node.name;
        }
      }
    }
  }
  return "";
}

absl::StatusOr<v1::Plan> NoDisk(const std::string& model) {
  return Error(absl::StatusCode::kResourceExhausted, "NO_DISK",
               "there is no other node to place model '" + model + "' on")
      .Hint("free space on the disk of their --data-dir, or add a worker");
}

// Weight and activation formats: what is asked for, or the defaults.
absl::Status CompleteFormats(const ModelRuntime& model, v1::LoadOptions* options) {
  const StoredKinds kinds = StoredKindsOf(*model.manifest);
  const bool quantizes =
      options->quantize() == v1::QUANTIZE_INT8 || options->quantize() == v1::QUANTIZE_INT4;
  if (!kinds.quantizable && quantizes) {
    return Error(absl::StatusCode::kInvalidArgument, "ALREADY_QUANTIZED",
                 "model '" + model.name + "' is stored quantized, and cannot be quantized again")
        .Hint("load it as stored: --quantize none");
  }
  if (options->activations() == v1::ACTIVATIONS_INT8 && !kinds.integers && !quantizes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_ACTIVATIONS",
                 "--activations int8 needs quantized weights, and those of model '" + model.name +
                     "' are floats")
        .Hint("add --quantize int8, or leave --activations out");
  }
  if (!quantizes) options->set_quantize(v1::QUANTIZE_NONE);
  if (options->activations() == v1::ACTIVATIONS_UNSPECIFIED) {
    options->set_activations(kinds.integers || quantizes ? v1::ACTIVATIONS_INT8
                                                         : v1::ACTIVATIONS_F32);
  }
  return absl::OkStatus();
}

// Where layers are given, they say how many nodes each stage has.
absl::Status CheckRanks(const v1::LoadOptions& options) {
  for (const v1::LoadOptions::PinnedLayers& pin : options.layers()) {
    const auto nodes = static_cast<uint32_t>(std::max(1, pin.ranks_size()));
    if (options.ranks() != 0 && options.ranks() != nodes) {
      return Error(absl::StatusCode::kInvalidArgument, "LAYERS_PINNED_WRONG",
                   "--ranks says " + std::to_string(options.ranks()) +
                       " nodes a stage, and --layers names " + std::to_string(nodes) +
                       " for layers " + std::to_string(pin.first_layer()) + "-" +
                       std::to_string(pin.last_layer()))
          .Hint("leave --ranks out: --layers a+b:0-9,c:10-31 names the nodes of each stage");
    }
  }
  return absl::OkStatus();
}

absl::Status Unfit(const ModelRuntime& model, const ModelRuntime& draft, const std::string& why) {
  return Error(absl::StatusCode::kFailedPrecondition, "DRAFT_MODEL_UNFIT",
               "model '" + draft.name + "' cannot guess for model '" + model.name + "': " + why)
      .Hint("choose a smaller model of the same family, or --speculate lookup");
}

}  // namespace

absl::Status CheckDraftModel(const ModelRuntime& model, const ModelRuntime& draft) {
  if (model.name == draft.name || model.weights_digest() == draft.weights_digest()) {
    return Unfit(model, draft, "they are the same");
  }
  if (model.spec().vocab != draft.spec().vocab) {
    return Unfit(model, draft,
                 "it has " + std::to_string(draft.spec().vocab) + " token ids, not " +
                     std::to_string(model.spec().vocab));
  }
  if (model.tokenizer == nullptr || draft.tokenizer == nullptr) {
    return absl::OkStatus();  // Ids are all that there is.
  }
  for (uint32_t id = 0; id < model.spec().vocab; ++id) {
    if (model.tokenizer->BytesOf(id) != draft.tokenizer->BytesOf(id)) {
      return Unfit(model, draft, "token id " + std::to_string(id) + " is another text in it");
    }
  }
  return absl::OkStatus();
}

v1::Recovery RecoveryOf(const v1::LoadOptions& options) {
  const bool by_hand = !options.nodes().empty() || !options.layers().empty();
  return options.recovery() != v1::RECOVERY_UNSPECIFIED ? options.recovery()
         : by_hand                                      ? v1::RECOVERY_WAIT
                                                        : v1::RECOVERY_MOVE;
}

absl::StatusOr<v1::LoadOptions> CompleteLoadOptions(const ModelRuntime& model,
                                                    const LoadDefaults& defaults,
                                                    v1::LoadOptions options) {
  const uint32_t most = model.spec().context;
  if (options.context() > most) {
    return Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED",
                 "a context of " + std::to_string(options.context()) + " tokens, but model '" +
                     model.name + "' was made for " + std::to_string(most))
        .Limit("context=" + std::to_string(most))
        .Hint("choose --context " + std::to_string(most) +
              " or less; where the model's authors extend it by YaRN, write the rope_scaling that "
              "they give into config.json, and add the model again");
  }
  RETURN_IF_ERROR(CompleteFormats(model, &options));
  RETURN_IF_ERROR(CheckAnswerFormats(options));
  if (options.standby() > kMostStandby) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_STANDBY",
                 "a layer is kept on at most " + std::to_string(kMostStandby) + " other nodes")
        .Limit("standby=" + std::to_string(kMostStandby))
        .Hint("choose a smaller --standby");
  }
  RETURN_IF_ERROR(CheckRanks(options));
  RETURN_IF_ERROR(ParseLoadSpeculate(options.speculate()).status());
  if (options.kv_dtype() == v1::KV_DTYPE_BF16) {
    return Error(absl::StatusCode::kUnimplemented, "NOT_SUPPORTED",
                 "--kv-dtype bf16 is not supported yet")
        .Hint("use --kv-dtype f16 or f32");
  }
  if (options.goal() == v1::PLAN_GOAL_UNSPECIFIED) options.set_goal(v1::PLAN_GOAL_LATENCY);
  if (options.context() == 0) {
    options.set_context(
        static_cast<uint32_t>(std::min<uint64_t>(most, defaults.max_model_context)));
  }
  if (options.sessions() == 0) options.set_sessions(kDefaultSessions);
  if (options.kv_tokens() == 0) {
    options.set_kv_tokens(uint64_t{options.context()} * options.sessions());
  }
  if (options.kv_dtype() == v1::KV_DTYPE_UNSPECIFIED) options.set_kv_dtype(v1::KV_DTYPE_F16);
  options.set_recovery(RecoveryOf(options));
  if (options.max_batch_tokens() == 0) options.set_max_batch_tokens(defaults.max_batch_tokens);
  return options;
}

std::string DefaultSpeculate(const v1::Plan& plan) {
  for (const v1::PlanPipeline& pipeline : plan.pipelines()) {
    for (const v1::PlanStage& stage : pipeline.stages()) {
      for (const v1::PlanRank& rank : stage.ranks()) {
        if (rank.device() != "cpu") {
          return "off";
        }
      }
    }
  }
  return "auto";
}

absl::StatusOr<v1::Plan> ChoosePlacement(const ModelRuntime& model, const v1::LoadOptions& options,
                                         PlannerCluster cluster, nanoseconds step_timeout,
                                         bool activations_by_default) {
  if (cluster.nodes.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_NODES",
                 "there is no live worker to place model '" + model.name + "' on")
        .Hint("start one: strata-worker --coordinator HOST:PORT");
  }
  PlannerRequest request;
  request.options = options;
  request.activations_by_default = activations_by_default;
  const PlannerModel planned = model.ForPlanner(options);
  ASSIGN_OR_RETURN(v1::Plan plan, MakePlan(cluster, planned, request));
  // Who named the nodes hears from them what is wrong with their disks.
  const bool chosen = !options.layers().empty() || !options.nodes().empty();
  std::vector<std::string> full;
  for (std::string node = chosen ? "" : NodeWithoutDisk(cluster, plan); !node.empty();
       node = NodeWithoutDisk(cluster, plan)) {
    full.push_back(node);
    DropNode(node, &cluster);
    auto other = cluster.nodes.empty() ? NoDisk(model.name) : MakePlan(cluster, planned, request);
    if (!other.ok()) {
      return Annotate(other.status(),
                      "without " + SomeOf(full) + ", whose disk has no room for its weights");
    }
    plan = *std::move(other);
  }
  if (!full.empty()) {
    plan.add_why("without " + SomeOf(full) + ": no room for its weights on the disk of --data-dir");
  }
  plan.add_why(FirstSteps(plan, options, step_timeout));
  return plan;
}

absl::StatusOr<v1::Plan> ChooseAndCompare(const ModelRuntime& model, const v1::LoadOptions& options,
                                          const PlannerCluster& cluster, nanoseconds step_timeout,
                                          bool activations_by_default) {
  ASSIGN_OR_RETURN(v1::Plan plan,
                   ChoosePlacement(model, options, cluster, step_timeout, activations_by_default));
  PlannerRequest request;
  request.options = options;
  request.activations_by_default = activations_by_default;
  if (std::string compared = CompareRanks(cluster, model.ForPlanner(options), request, plan);
      !compared.empty()) {
    plan.add_why(std::move(compared));
  }
  return plan;
}

namespace {

ReplacementRequest RequestOf(const ModelRuntime& model, const v1::LoadOptions& options,
                             const PlannerCluster& cluster, const v1::Plan& before,
                             nanoseconds step_timeout) {
  return {.before = before,
          .nodes = cluster.nodes,
          .layer_bytes = model.ForPlanner(options).layer_bytes,
          .options = options,
          .plan = [&model, &cluster, step_timeout](const v1::LoadOptions& asked) {
            return ChoosePlacement(model, asked, cluster, step_timeout);
          }};
}

}  // namespace

absl::StatusOr<v1::Plan> ChooseReplacement(const ModelRuntime& model,
                                           const v1::LoadOptions& options,
                                           const PlannerCluster& cluster, const v1::Plan& before,
                                           const WeightHolders& holders, nanoseconds step_timeout) {
  ReplacementRequest request = RequestOf(model, options, cluster, before, step_timeout);
  request.other_class = true;
  request.caches =
      CachesOf(LayersOf(model, before.numerics_class().name()), cluster.nodes, holders);
  return PlanReplacement(request);
}

absl::StatusOr<std::optional<v1::Plan>> ChooseBetter(const ModelRuntime& model,
                                                     const v1::LoadOptions& options,
                                                     const PlannerCluster& cluster,
                                                     const v1::Plan& runs,
                                                     nanoseconds step_timeout) {
  return PlanBetter(RequestOf(model, options, cluster, runs, step_timeout));
}

absl::Status CheckStillThere(const v1::Plan& plan, const ClusterState& cluster) {
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    for (const v1::PlanRank& rank : stage.ranks()) {
      const NodeRecord* node = cluster.Find(rank.node());
      if (node == nullptr || !node->alive || node->unfit() ||
          node->info.incarnation() != rank.incarnation()) {
        return Error(absl::StatusCode::kAborted, "CLUSTER_CHANGED",
                     "node '" + rank.node() + "' left while the model was being placed")
            .Hint("try again");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFitsBeside(const ModelSpec& spec, const v1::LoadOptions& options,
                             const v1::Plan& before, const v1::Plan& after,
                             const ClusterState& cluster) {
  if (HasSharedStage(before) || HasSharedStage(after)) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_SUPPORTED",
                 "a stage that several nodes compute together is not loaded beside another");
  }
  const PlannerCluster free = cluster.Snapshot(/*without_deployment=*/0);
  for (const PlacedPart& part : PartsOf(spec, options, after)) {
    const std::string& name = part.rank->node();
    const NodeRecord* record = cluster.Find(name);
    if (PlanUses(before, name) && (record == nullptr || !record->info.loads_beside())) {
      return Error(absl::StatusCode::kFailedPrecondition, "NOT_SUPPORTED",
                   "the worker of node '" + name +
                       "' is of a version that holds one stage of a model")
          .Node(name)
          .Hint("upgrade it");
    }
    if (StageStays(before, after, part.stage)) {
      continue;
    }
    for (const PlannerNode& node : free.nodes) {
      if (node.name == name &&
          (node.free_bytes < part.bytes || node.host_free_bytes < part.host_bytes)) {
        const v1::PlanStage& stage = OnlyPipeline(after).stages(part.stage);
        return Error(absl::StatusCode::kResourceExhausted, "NO_ROOM_BESIDE",
                     "node '" + name + "' has not the memory for layers " +
                         std::to_string(stage.first_layer()) + "-" +
                         std::to_string(stage.last_layer()) + " beside what it holds")
            .Node(name)
            .Limit("free_bytes=" + std::to_string(node.free_bytes));
      }
    }
  }
  return absl::OkStatus();
}

bool SamePlacement(const v1::Plan& a, const v1::Plan& b) {
  const auto& x = OnlyPipeline(a).stages();
  const auto& y = OnlyPipeline(b).stages();
  return a.numerics_class().name() == b.numerics_class().name() &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const v1::PlanStage& s, const v1::PlanStage& t) {
                      return SameRanks(s, t) && s.first_layer() == t.first_layer() &&
                             s.last_layer() == t.last_layer() &&
                             std::equal(s.kv_pages().begin(), s.kv_pages().end(),
                                        t.kv_pages().begin(), t.kv_pages().end());
                    });
}

std::vector<PlacedPart> PartsOf(const ModelSpec& spec, const v1::LoadOptions& options,
                                const v1::Plan& plan) {
  const auto& stages = OnlyPipeline(plan).stages();
  std::vector<PlacedPart> parts;
  for (int i = 0; i < stages.size(); ++i) {
    const bool heads = i + 1 == stages.size();
    const bool shared = stages[i].ranks_size() > 1;
    for (const v1::PlanRank& rank : stages[i].ranks()) {
      const Footprint& footprint = FootprintOf(rank.device());
      const uint32_t rows = options.max_batch_tokens();
      const uint64_t buffers =
          shared ? RankBufferBytes(footprint, spec, rows, heads, options.context())
                 : footprint.BufferBytes(spec, rows, heads, options.context());
      const uint64_t weights = shared ? rank.weight_bytes() : stages[i].weight_bytes();
      const uint64_t kv = shared ? rank.kv_bytes() : stages[i].kv_bytes();
      parts.push_back({.stage = i,
                       .rank = &rank,
                       .bytes = weights + kv + buffers,
                       .host_bytes = footprint.HostBytes(spec, rows, heads, options.context())});
    }
  }
  return parts;
}

absl::Status CheckStillFits(const ModelRuntime& model, const v1::LoadOptions& options,
                            const v1::Plan& plan, const PlannerCluster& cluster) {
  for (const PlacedPart& part : PartsOf(model.spec(), options, plan)) {
    for (const PlannerNode& node : cluster.nodes) {
      if (node.name == part.rank->node() &&
          (node.free_bytes < part.bytes || node.host_free_bytes < part.host_bytes)) {
        return Error(absl::StatusCode::kAborted, "CLUSTER_CHANGED",
                     "another load took memory of node '" + node.name +
                         "' while this one was being placed")
            .Node(node.name)
            .Limit("free_bytes=" + std::to_string(node.free_bytes))
            .Hint("try again");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace strata
