// strata model check.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "cli/command.h"
#include "cli/documents.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "common/model/row_digest.h"
#include "common/status.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

struct CheckCommand {
  std::string model;
  std::string node;
  std::optional<uint32_t> tokens;
};

std::string LayerName(const v1::ModelCheck& check) {
  return check.layer() == check.layers() ? "norm and head"
                                         : "layer " + std::to_string(check.layer());
}

// That the check found a difference, for stderr and the exit status.
absl::Status Differs(const std::string& model, const v1::ModelCheck& check) {
  return Error(absl::StatusCode::kDataLoss, "LAYERS_DIFFER",
               LayerName(check) + " of " + model + ", in stage " + std::to_string(check.stage()) +
                   " on node '" + check.node() + "', differs from what node '" +
                   check.reference_node() + "' computes, from position " +
                   std::to_string(check.position()) + " on")
      .Node(check.node())
      .Hint(check.hint());
}

absl::Status Check(const Context& context, const CheckCommand& command) {
  v1::CheckModelRequest request;
  request.set_name(command.model);
  request.set_node(command.node);
  request.set_tokens(command.tokens.value_or(0));
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  const sdk::Cancellation cancellation;
  const OnInterrupt on_interrupt(context, [cancellation] { cancellation.Cancel(); });
  Progress progress(&context.err(), context.environment().err_is_terminal);
  const absl::StatusOr<v1::ModelCheck> check =
      client->CheckModel(request,
                         [&](const v1::CheckModelProgress& message) {
                           progress.Show({Bar{.label = command.model,
                                              .phase = message.phase(),
                                              .done_bytes = message.layers_done(),
                                              .total_bytes = message.layers_total(),
                                              .note = "",
                                              .unit = "layers"}});
                         },
                         {.timeout = {}, .cancellation = cancellation});
  progress.Finish();
  RETURN_IF_ERROR(check.status());
  if (context.json()) {
    WriteJson(CheckDocument(command.model, *check), &context.out());
  } else if (check->equal()) {
    context.out() << command.model
                  << " is computed alike by its stages and layer by layer on node '"
                  << check->reference_node() << "': " << Counted(check->layers(), "layer")
                  << " and the head, " << Counted(check->tokens(), "token")
                  << ", every bit (numerics class " << check->numerics_class() << ")\n";
  }
  return check->equal() ? absl::OkStatus() : Differs(command.model, *check);
}

}  // namespace

void AddCheckCommand(CommandTree* tree, CLI::App* model) {
  auto command = std::make_shared<CheckCommand>();
  CLI::App* check = tree->AddLeaf(
      model, "check", "Compare a loaded model's stages with its layers one by one, bit for bit",
      "  strata model check recall\n"
      "  strata model check recall --node b --tokens 64 --json\n"
      "A short sequence goes through the stages as a request, and through one worker that loads\n"
      "layer after layer, each alone. Exit status 0 when all agree; else 1, and the first layer\n"
      "that differs is named, with its node.",
      [command](Context& context) { return Check(context, *command); });
  AddModelName(check, "MODEL", &command->model, "A loaded model");
  check
      ->add_option("--node", command->node,
                   "Who computes layer by layer; default: a worker with room, rather one without "
                   "layers of the model")
      ->type_name("NODE");
  AddCount(check, "--tokens", &command->tokens, 1, kMaxCheckTokens,
           "Length of the sequence; default 24");
}

}  // namespace strata::cli
