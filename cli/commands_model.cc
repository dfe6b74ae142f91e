// strata model add, pull, list, show, remove.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/documents.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/tables.h"
#include "common/printable.h"
#include "common/report/model_report.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

struct RegisterOptions {
  std::string source;  // PATH or ORG/NAME.
  std::string name;
  std::string revision;
  bool upload = false;
  bool detach = false;
  std::string load;  // A goal; "": it is not loaded.
};

using Register = std::function<absl::StatusOr<v1::Model>(
    const sdk::Client::ModelProgressFn& progress, const sdk::CallOptions& call)>;

absl::Status InterruptedError(const RegisterOptions& options, bool began) {
  if (options.upload) {
    return Error(absl::StatusCode::kCancelled, "CANCELLED",
                 "the upload was stopped; nothing was registered")
        .Hint("the same command begins again");
  }
  return Error(absl::StatusCode::kCancelled, "DETACHED",
               began ? "detached: it goes on at the coordinator"
                     : "stopped before the coordinator answered")
      .Hint("see `strata model list`");
}

// Runs `run` with a bar. With `detach` it is left alone once the coordinator has begun; Ctrl-C
// does likewise, or ends an upload, which needs this process.
absl::Status RunRegister(const Context& context, const RegisterOptions& options,
                         const Register& run) {
  const sdk::Cancellation cancellation;
  bool interrupted = false;
  const OnInterrupt on_interrupt(context, [&interrupted, cancellation] {
    interrupted = true;
    cancellation.Cancel();
  });
  Progress progress(&context.err(), context.environment().err_is_terminal);
  bool began = false;
  bool detached = false;
  const auto show = [&](const v1::ModelProgress& message) {
    began = true;
    if (options.detach && !message.has_model()) {
      detached = true;
      cancellation.Cancel();
      return;
    }
    progress.Show({Bar{.label = message.file().empty() ? options.source : message.file(),
                       .phase = message.phase(),
                       .done_bytes = message.done_bytes(),
                       .total_bytes = message.total_bytes(),
                       .note = ""}});
  };
  const absl::StatusOr<v1::Model> model = run(show, {.timeout = {}, .cancellation = cancellation});
  progress.Finish();
  if (!model.ok() && interrupted) {
    return InterruptedError(options, began);
  }
  if (!model.ok() && detached) {
    if (context.json()) {
      WriteJson(Json{{"detached", true}, {"source", options.source}}, &context.out());
    } else {
      context.out() << options.source
                    << " is being registered at the coordinator; see `strata model list`\n";
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(model.status());
  if (context.json()) {
    if (!options.load.empty()) {
      return LoadForGoal(context, model->name(), options.load);
    }
    WriteJson(ModelDocument(*model), &context.out());
    return absl::OkStatus();
  }
  context.out() << "registered " << model->name() << "\n";
  context.out() << ModelReport(*model);
  if (!options.load.empty()) {
    return LoadForGoal(context, model->name(), options.load);
  }
  context.err() << "next: strata model load " << model->name() << "\n";
  return absl::OkStatus();
}

absl::Status Add(const Context& context, const RegisterOptions& options) {
  if (options.upload && options.detach) {
    return UsageError("--upload sends from here and cannot --detach");
  }
  if (!options.load.empty() && options.detach) {
    return UsageError("--load waits until the model is registered, and --detach does not");
  }
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  return RunRegister(
      context, options,
      [&](const sdk::Client::ModelProgressFn& progress, const sdk::CallOptions& call) {
        if (options.upload) {
          return client->UploadModel(options.source, options.name, progress, call);
        }
        v1::AddModelRequest request;
        // The coordinator often runs on this machine; what is relative is relative to here.
        std::error_code error;
        const auto absolute = std::filesystem::absolute(options.source, error);
        request.set_path(error ? options.source : absolute.lexically_normal().string());
        request.set_name(options.name);
        return client->AddModel(request, progress, call);
      });
}

absl::Status Pull(const Context& context, const RegisterOptions& options) {
  const size_t slash = options.source.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == options.source.size() ||
      options.source.find('/', slash + 1) != std::string::npos) {
    return UsageError("\"" + options.source + "\" is no repository; write ORG/NAME");
  }
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  return RunRegister(
      context, options,
      [&](const sdk::Client::ModelProgressFn& progress, const sdk::CallOptions& call) {
        v1::PullModelRequest request;
        request.set_repository(options.source);
        request.set_revision(options.revision);
        request.set_name(options.name);
        return client->PullModel(request, progress, call);
      });
}

absl::Status ListModels(const Context& context) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::ListModelsResponse models, client->ListModels());
  if (context.json()) {
    WriteJson(ModelList(models), &context.out());
  } else if (models.models().empty()) {
    context.out() << "No model is registered; add one with `strata model add PATH`.\n";
  } else {
    PrintModels(models.models(), "", &context.out());
  }
  return absl::OkStatus();
}

void PrintStandby(const v1::Model& model, std::ostream* out) {
  *out << "\nKept on other nodes (--standby " << model.options().standby() << ")\n";
  Table table({"LAYERS", "OF", "ON", "STATE", ">ON DISK", "PROBLEM"});
  for (const v1::StandbyLayers& layers : model.standby()) {
    const uint32_t count = layers.last_layer() - layers.first_layer() + 1;
    table.AddRow({std::to_string(layers.first_layer()) + "-" + std::to_string(layers.last_layer()),
                  Printable(layers.of_node()),
                  layers.node().empty() ? "-" : Printable(layers.node()),
                  layers.state() + " (" + std::to_string(layers.layers_done()) + " of " +
                      std::to_string(count) + ")",
                  FormatSize(layers.bytes()), Printable(layers.problem())});
  }
  table.Print(out, "  ");
}

void PrintModel(const v1::Model& model, std::ostream& out) {
  out << model.name() << " is " << model.state() << "\n";
  if (!model.problem().empty()) {
    out << "  problem      " << Printable(model.problem()) << "\n";
  }
  if (model.has_moves_to()) {
    out << "  moves to     " << Placement(model.moves_to()) << ", once that has loaded\n";
  }
  if (!model.move_problem().empty()) {
    out << "  move         " << Printable(model.move_problem()) << "\n";
  }
  if (model.has_retry()) {
    out << "  loads again  in "
        << FormatDuration(
               std::chrono::milliseconds(static_cast<int64_t>(model.retry().in_s() * 1e3)))
        << ", by itself; failed so far: " << model.retry().failed() << "\n";
  }
  out << "  path         " << Printable(model.path()) << "\n"
      << "  digest       " << model.digest() << "\n"
      << ModelReport(model);
  if (model.has_scheduling()) {
    out << "  steps        " << SchedulingText(model.scheduling()) << "\n";
  }
  if (model.has_plan()) {
    out << "\n";
    PrintPlan(model.plan(), &out);
  }
  if (model.standby_size() > 0) {
    PrintStandby(model, &out);
  }
}

absl::Status Show(const Context& context, const std::string& name) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::Model model, client->GetModel(name));
  if (context.json()) {
    WriteJson(ModelDocument(model), &context.out());
  } else {
    PrintModel(model, context.out());
  }
  return absl::OkStatus();
}

absl::Status RemoveModel(const Context& context, const std::string& name, bool force) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  RETURN_IF_ERROR(client->RemoveModel(name, force));
  if (context.json()) {
    WriteJson(Json{{"removed", name}}, &context.out());
  } else {
    context.out() << "removed " << name << "\n";
  }
  return absl::OkStatus();
}

void AddRegisterCommands(CommandTree* tree, CLI::App* group) {
  auto add = std::make_shared<RegisterOptions>();
  CLI::App* app = tree->AddLeaf(
      group, "add", "Register a checkpoint folder or .gguf file",
      "  strata model add ./models/recall --name recall\n"
      "  strata model add /usr/share/strata/models/recall --load throughput\n"
      "  strata model add ~/Downloads/llama --upload\n"
      "  strata model add ~/Downloads/Llama-3.2-1B-Instruct-Q4_0.gguf\n"
      "Without --upload PATH is on the coordinator's machine; its files stay where they are, and\n"
      "later changes to them are refused. Says what the checkpoint has (layers, formats, "
      "tokenizer,\n"
      "chat template, memory) and what it cannot do; `strata model show NAME` says it again,\n"
      "and with --json both have it in `facts`.",
      [add](Context& context) { return Add(context, *add); });
  AddRequired(app, "PATH", &add->source, "The folder with config.json, or a .gguf file");
  AddNewModelName(app, &add->name, "What to call it; default: the folder's or file's name");
  app->add_flag("--upload", add->upload, "Send the files from this machine");
  app->add_flag("--detach", add->detach, "Return at once; it goes on at the coordinator");
  AddGoal(app, "--load", &add->load, "Place it on workers at once, for this goal");

  auto pull = std::make_shared<RegisterOptions>();
  app = tree->AddLeaf(
      group, "pull", "Fetch a model from Hugging Face, and register it",
      "  strata model pull meta-llama/Llama-3.2-1B-Instruct\n"
      "The coordinator fetches it (its HF_ENDPOINT and HF_TOKEN count); what is there already is\n"
      "not fetched again.",
      [pull](Context& context) { return Pull(context, *pull); });
  AddRepository(app, "ORG/NAME", &pull->source, "The repository");
  app->add_option("--revision", pull->revision, "Branch, tag or commit; default main")
      ->type_name("R");
  AddNewModelName(app, &pull->name, "What to call it; default: NAME");
  app->add_flag("--detach", pull->detach, "Return at once; it goes on at the coordinator");
}

}  // namespace

void AddModelCommands(CommandTree* tree) {
  CLI::App* group = tree->AddGroup("model", "What can be run, and where it runs");
  AddRegisterCommands(tree, group);
  tree->AddLeaf(group, "list", "List the models", "  strata model list --json", ListModels);
  auto name = std::make_shared<std::string>();
  CLI::App* show =
      tree->AddLeaf(group, "show", "All that is known of a model", "  strata model show recall",
                    [name](Context& context) { return Show(context, *name); });
  AddModelName(show, "MODEL", name.get(), "The model's name");
  auto force = std::make_shared<bool>(false);
  CLI::App* remove = tree->AddLeaf(
      group, "remove", "Forget a model",
      "  strata model remove recall\nYour own files are never deleted. A loaded model is refused;\n"
      "--force unloads it first.",
      [name, force](Context& context) { return RemoveModel(context, *name, *force); });
  AddModelName(remove, "MODEL", name.get(), "The model's name");
  remove->add_flag("--force", *force, "Unload it first, cancelling its requests");
  AddLoadCommands(tree, group);
  AddCheckCommand(tree, group);
}

}  // namespace strata::cli
