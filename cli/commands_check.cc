// strata model check.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

// "0.13 %"
std::string Share(double share) { return absl::StrFormat("%.3g %%", 100 * share); }

// Who computed layer by layer: "node 'a'", or of each kind one.
std::string References(const v1::ModelCheck& check) {
  if (check.reference_nodes().empty()) {
    return "node '" + check.reference_node() + "'";
  }
  return "nodes " + absl::StrJoin(check.reference_nodes(), " and ");
}

// That the check found a difference, for stderr and the exit status.
absl::Status Differs(const std::string& model, const v1::ModelCheck& check) {
  // Of other numerics than the plan's a node is compared with once all others are equal.
  const bool across = check.largest_difference() > check.tolerance();
  const std::string who = LayerName(check) + " of " + model + ", in stage " +
                          std::to_string(check.stage()) + " on node '" + check.node() + "', ";
  const std::string what =
      across ? "is within " + Share(check.largest_difference()) + " of what node '" +
                   check.across_node() + "' computes in other numerics, and " +
                   Share(check.tolerance()) + " are allowed, at position " +
                   std::to_string(check.position())
             : "differs from what node '" + check.reference_node() + "' computes, from position " +
                   std::to_string(check.position()) + " on";
  return Error(absl::StatusCode::kDataLoss, "LAYERS_DIFFER", who + what)
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
    context.out() << command.model << " is computed alike by its stages and layer by layer on "
                  << References(*check) << ": " << Counted(check->layers(), "layer")
                  << " and the head, " << Counted(check->tokens(), "token")
                  << ", every bit (numerics class " << check->numerics_class() << ")\n";
    if (!check->across_node().empty()) {
      context.out() << "node '" << check->across_node()
                    << "', of other numerics, computes each layer to within "
                    << Share(check->largest_difference()) << " of a row's largest value ("
                    << Share(check->tolerance()) << " allowed)\n";
    }
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
      "that differs is named, with its node. Where a plan mixes numerics, a worker of each "
      "computes\n"
      "its layers. A --node whose numerics the plan has not computes every layer besides, which "
      "may\n"
      "differ by 0.2 % of a row's largest value, or 5 % where the plan's activations are int8.",
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
