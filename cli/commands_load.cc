// strata model load, move, unload, resize; strata plan.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>

#include "absl/strings/match.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/machines_file.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/tables.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/json_reader.h"
#include "common/names.h"
#include "common/plan.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/planning.pb.h"

namespace strata::cli {
namespace {

struct LoadCommand {
  std::string model;
  PlacementOptions placement;
  bool detach = false;
};

struct MoveCommand {
  std::string model;
  std::string nodes;
  std::string layers;
  bool plan_only = false;
  bool detach = false;
};

// A worker that has not got further for so long is said to be silent, in seconds.
constexpr double kSilentSaid = 3;

std::string Seconds(double seconds) {
  return FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
}

Bar WorkerBar(const v1::LoadModelProgress::Worker& worker) {
  Bar bar{.label = worker.node(),
          .phase = worker.phase(),
          .done_bytes = worker.done_bytes(),
          .total_bytes = worker.total_bytes(),
          .note = ""};
  if (worker.phase() == "ready") {
    bar.note = worker.fetched_bytes() == 0 ? "all from the cache"
                                           : FormatSize(worker.fetched_bytes()) + " fetched";
  } else if (worker.silent_s() >= kSilentSaid) {
    bar.note = "no progress for " + Seconds(worker.silent_s());
    if (worker.limit_s() > 0) bar.note += " (given up after " + Seconds(worker.limit_s()) + ")";
  }
  return bar;
}

Json LoadDocument(const std::string& model, const v1::LoadModelProgress& last,
                  const v1::Plan& plan) {
  Json workers = Json::array();
  for (const auto& worker : last.workers()) {
    workers.push_back({{"node", worker.node()},
                       {"phase", worker.phase()},
                       {"done_bytes", worker.done_bytes()},
                       {"total_bytes", worker.total_bytes()},
                       {"fetched_bytes", worker.fetched_bytes()},
                       {"silent_s", worker.silent_s()}});
  }
  return {{"model", model},
          {"ready", last.ready()},
          {"plan", PlanDocument(plan)},
          {"workers", std::move(workers)}};
}

// What the coordinator says of a model on its way to its nodes.
struct Followed {
  v1::Plan plan;
  v1::LoadModelProgress last;
};

using FollowFn = std::function<absl::Status(sdk::Client& client, const sdk::Client::LoadProgressFn&,
                                            const sdk::CallOptions&)>;

// `what` of the model is asked of the coordinator by `call`, with bars meanwhile.
absl::StatusOr<Followed> Follow(const Context& context, sdk::Client& client,
                                const std::string& model, const std::string& what,
                                const FollowFn& call) {
  const sdk::Cancellation cancellation;
  const OnInterrupt on_interrupt(context, [cancellation] { cancellation.Cancel(); });
  Progress progress(&context.err(), context.environment().err_is_terminal);
  Followed followed;
  const absl::Status status = call(client,
                                   [&](const v1::LoadModelProgress& message) {
                                     if (message.has_plan() && followed.plan.pipelines().empty()) {
                                       followed.plan = message.plan();
                                       context.err() << "placing " << model << " on "
                                                     << Placement(followed.plan) << std::endl;
                                     }
                                     std::vector<Bar> bars;
                                     for (const auto& worker : message.workers()) {
                                       bars.push_back(WorkerBar(worker));
                                     }
                                     if (!bars.empty()) {
                                       progress.Show(bars);
                                     }
                                     followed.last = message;
                                   },
                                   {.timeout = {}, .cancellation = cancellation});
  progress.Finish();
  if (!status.ok() && cancellation.cancelled()) {
    return Error(absl::StatusCode::kCancelled, "DETACHED",
                 followed.plan.pipelines().empty()
                     ? "stopped before the coordinator answered"
                     : "detached: the " + what + " of " + model + " goes on")
        .Hint("see `strata model show " + model + "`");
  }
  RETURN_IF_ERROR(status);
  return followed;
}

// A coordinator of a version that knows no ranks does not say so: its plan has none.
absl::Status CheckHasRanks(const v1::LoadOptions& options, const v1::Plan& plan) {
  const v1::PlanPipeline* pipeline = FindPipeline(plan);
  const bool has = pipeline != nullptr &&
                   std::any_of(pipeline->stages().begin(), pipeline->stages().end(),
                               [](const v1::PlanStage& stage) { return stage.ranks_size() > 1; });
  if (options.ranks() <= 1 || has) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition, "OPTION_NOT_KNOWN",
               "the coordinator is of a version that does not know --ranks")
      .Hint("upgrade it, or leave --ranks out");
}

absl::Status Load(const Context& context, const LoadCommand& command) {
  v1::LoadModelRequest request;
  request.set_model(command.model);
  request.set_detach(command.detach);
  RETURN_IF_ERROR(command.placement.Apply(request.mutable_options()));
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  if (request.options().ranks() > 1) {  // Before anything is placed otherwise.
    ASSIGN_OR_RETURN(const v1::Plan plan, client->PlanModel(command.model, request.options()));
    RETURN_IF_ERROR(CheckHasRanks(request.options(), plan));
  }
  ASSIGN_OR_RETURN(const Followed followed,
                   Follow(context, *client, command.model, "load",
                          [&](sdk::Client& asked, const auto& progress, const auto& options) {
                            return asked.LoadModel(request, progress, options);
                          }));
  if (context.json()) {
    WriteJson(LoadDocument(command.model, followed.last, followed.plan), &context.out());
  } else if (command.detach && !followed.last.ready()) {
    context.out() << command.model << " is being loaded on " << Placement(followed.plan)
                  << "; see `strata model show " << command.model << "`\n";
  } else {
    context.out() << command.model << " is ready on " << Placement(followed.plan) << "\n";
    if (const auto model = client->GetModel(command.model); model.ok() && model->has_scheduling()) {
      context.out() << "steps: " << SchedulingText(model->scheduling()) << "\n";
    }
    context.err() << "next: strata chat " << command.model << "\n";
  }
  return absl::OkStatus();
}

absl::Status Move(const Context& context, const MoveCommand& command) {
  v1::LoadOptions where;
  RETURN_IF_ERROR(ApplyNodes(command.nodes, command.layers, &where));
  v1::MoveModelRequest request;
  request.set_model(command.model);
  *request.mutable_nodes() = where.nodes();
  *request.mutable_layers() = where.layers();
  request.set_detach(command.detach);
  request.set_plan_only(command.plan_only);
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const Followed followed,
                   Follow(context, *client, command.model, "move",
                          [&](sdk::Client& asked, const auto& progress, const auto& options) {
                            return asked.MoveModel(request, progress, options);
                          }));
  if (context.json()) {
    WriteJson(command.plan_only ? PlanDocument(followed.plan)
                                : LoadDocument(command.model, followed.last, followed.plan),
              &context.out());
  } else if (command.plan_only) {
    PrintPlan(followed.plan, &context.out());
  } else if (command.detach && !followed.last.ready()) {
    context.out() << command.model << " is on its way to " << Placement(followed.plan)
                  << "; see `strata model show " << command.model << "`\n";
  } else {
    context.out() << command.model << " is ready on " << Placement(followed.plan) << "\n";
  }
  return absl::OkStatus();
}

absl::Status ShowPlan(const Context& context, const absl::StatusOr<v1::Plan>& plan) {
  RETURN_IF_ERROR(plan.status());
  if (context.json()) {
    WriteJson(PlanDocument(*plan), &context.out());
  } else {
    PrintPlan(*plan, &context.out());
  }
  return absl::OkStatus();
}

absl::Status Unload(const Context& context, const std::string& model, bool force) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  RETURN_IF_ERROR(client->UnloadModel(model, force));
  if (context.json()) {
    WriteJson(Json{{"unloaded", model}}, &context.out());
  } else {
    context.out() << "unloaded " << model << "\n";
  }
  return absl::OkStatus();
}

struct PlanCommand {
  std::string model;
  std::string machines;
  PlacementOptions placement;
};

absl::Status ShowPrediction(const Context& context, const v1::LoadOptions& options,
                            const absl::StatusOr<v1::PlanMachinesResponse>& planned) {
  RETURN_IF_ERROR(planned.status());
  RETURN_IF_ERROR(CheckHasRanks(options, planned->plan()));
  if (context.json()) {
    Json document = PlanDocument(planned->plan());
    document["drafts"] = DraftsDocument(planned->drafts());
    WriteJson(document, &context.out());
  } else {
    PrintPlan(planned->plan(), planned->drafts(), &context.out());
  }
  return absl::OkStatus();
}

absl::Status PlanForMachines(const Context& context, const PlanCommand& command) {
  v1::PlanMachinesRequest request;
  RETURN_IF_ERROR(command.placement.Apply(request.mutable_options()));
  ASSIGN_OR_RETURN(const std::string machines,
                   ReadSmallFile(command.machines, kMaxMachinesFileBytes));
  RETURN_IF_ERROR(ReadMachines(machines, command.machines, &request));
  const bool by_path =
      command.model.find('/') != std::string::npos || absl::EndsWith(command.model, ".json");
  if (by_path) {
    std::error_code ignored;
    const std::filesystem::path path = command.model;
    const bool folder = std::filesystem::is_directory(path, ignored);
    ASSIGN_OR_RETURN(
        *request.mutable_config_json(),
        ReadSmallFile((folder ? path / "config.json" : path).string(), kMaxConfigBytes));
  } else {
    request.set_model(command.model);
  }
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  return ShowPrediction(context, request.options(), client->PredictPlan(request));
}

absl::Status Plan(const Context& context, const PlanCommand& command) {
  if (!command.machines.empty()) {
    return PlanForMachines(context, command);
  }
  if (const absl::Status named = CheckModelName(command.model); !named.ok()) {
    return UsageError("MODEL: " + std::string(named.message()));
  }
  v1::PlanMachinesRequest request;
  request.set_model(command.model);
  RETURN_IF_ERROR(command.placement.Apply(request.mutable_options()));
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  const auto planned = client->PredictPlan(request);
  // A coordinator of a version that predicts nothing plans on its own nodes by another call.
  if (absl::IsUnimplemented(planned.status()) || ReasonOf(planned.status()) == "BAD_MACHINES") {
    ASSIGN_OR_RETURN(const v1::Plan plan, client->PlanModel(command.model, request.options()));
    RETURN_IF_ERROR(CheckHasRanks(request.options(), plan));
    return ShowPlan(context, plan);
  }
  return ShowPrediction(context, request.options(), planned);
}

void AddPlanCommand(CommandTree* tree) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* app = tree->AddLeaf(
      tree->root(), "plan", "Say what `model load` would do and why, and change nothing",
      "  strata plan recall\n  strata plan recall --goal throughput --nodes a,b --json\n"
      "  strata plan ./llama-70b/config.json --quantize int4 --machines machines.toml\n"
      "With --machines it is about machines that need not be there, and about a model of which\n"
      "there may be a config.json alone.",
      [command](Context& context) { return Plan(context, *command); });
  AddRequired(
      app, "MODEL", &command->model,
      "A registered model; with --machines also the\npath of a config.json, or of its folder");
  AddText(app, "--machines", &command->machines, "FILE",
          "Plan for the machines of this file (docs/PLANNING.md)\nin place of the cluster's");
  command->placement.AddTo(app);
}

}  // namespace

absl::Status LoadForGoal(const Context& context, const std::string& model,
                         const std::string& goal) {
  LoadCommand command;
  command.model = model;
  command.placement.goal = goal;
  return Load(context, command);
}

void AddLoadCommands(CommandTree* tree, CLI::App* model) {
  auto command = std::make_shared<LoadCommand>();
  CLI::App* load = tree->AddLeaf(
      model, "load", "Place a model on workers and make it ready",
      "  strata model load recall\n"
      "  strata model load recall --goal throughput --sessions 16\n"
      "  strata model load recall --layers a:0-3,b:4-7\n"
      "It stays wanted: after a restart it loads again once its workers are back. Ctrl-C detaches.",
      [command](Context& context) { return Load(context, *command); });
  AddModelName(load, "MODEL", &command->model, "A registered model");
  command->placement.AddTo(load);
  load->add_flag("--detach", command->detach, "Return once it is placed; it goes on loading");

  auto where = std::make_shared<MoveCommand>();
  CLI::App* move = tree->AddLeaf(
      model, "move", "Have a loaded model go to other workers while it serves",
      "  strata model move recall\n"
      "  strata model move recall --nodes a,b\n"
      "  strata model move recall --layers a:0-3,b:4-7 --plan-only\n"
      "Without --nodes and --layers it goes where a load would place it now. Its layers\n"
      "load beside those that serve, where memory holds both; requests go on meanwhile,\n"
      "and have the same tokens. Ctrl-C detaches.",
      [where](Context& context) { return Move(context, *where); });
  AddModelName(move, "MODEL", &where->model, "A loaded model");
  AddText(move, "--nodes", &where->nodes, "a,b",
          "Use only these nodes; default all that are ready");
  AddText(move, "--layers", &where->layers, "a:0-9,b:10-31", "The whole placement, by hand");
  move->add_flag("--plan-only", where->plan_only, "Say where it would be, and move nothing");
  move->add_flag("--detach", where->detach, "Return once it is planned; it goes on moving");

  auto name = std::make_shared<std::string>();
  auto force = std::make_shared<bool>(false);
  CLI::App* unload = tree->AddLeaf(
      model, "unload", "Take a model off its workers",
      "  strata model unload recall\nIt stays registered. With requests in flight it is refused;\n"
      "--force cancels them.",
      [name, force](Context& context) { return Unload(context, *name, *force); });
  AddModelName(unload, "MODEL", name.get(), "A loaded model");
  unload->add_flag("--force", *force, "Cancel its requests");

  auto kv_tokens = std::make_shared<std::optional<uint64_t>>();
  CLI::App* resize = tree->AddLeaf(
      model, "resize", "Change the KV memory of a loaded model",
      "  strata model resize recall --kv-tokens 65536\n"
      "Layers stay where they are. Requests in flight wait, are computed again from\n"
      "their tokens, and give the same answer. What they were promised must still fit;\n"
      "a change that fails on a worker is undone.",
      [name, kv_tokens](Context& context) -> absl::Status {
        ASSIGN_OR_RETURN(const auto client, context.Connect());
        return ShowPlan(context, client->ResizeModel(*name, **kv_tokens));
      });
  AddModelName(resize, "MODEL", name.get(), "A loaded model");
  AddCount(resize, "--kv-tokens", kv_tokens.get(), 1, std::numeric_limits<uint64_t>::max(),
           "KV memory in tokens")
      ->required();
  AddPlanCommand(tree);
}

}  // namespace strata::cli
