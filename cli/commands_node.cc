// strata node.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/options.h"
#include "cli/tables.h"
#include "common/printable.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

absl::Status ListNodes(const Context& context) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes, client->ListNodes());
  if (context.json()) {
    WriteJson(NodeList(nodes), &context.out());
  } else if (nodes.nodes().empty()) {
    context.out() << "No worker has joined; start one with `strata-worker --coordinator "
                  << context.coordinator() << "`.\n";
  } else {
    PrintNodes(nodes.nodes(), "", &context.out());
  }
  return absl::OkStatus();
}

// What a worker says of itself.
std::string Said(const std::string& text) {
  constexpr size_t kMaxBytes = 256;
  return Printable(text, kMaxBytes);
}

void PrintNode(const v1::Node& node, std::ostream& out) {
  out << Said(node.name()) << " is " << Said(node.state())
      << (node.unfit().empty() ? "" : ": " + Printable(node.unfit(), 1024)) << "\n"
      << "  address      " << Said(node.address()) << "\n"
      << "  platform     " << Said(node.platform()) << ", version " << Said(node.version()) << "\n"
      << "  backend      " << Said(node.backend()) << " " << Said(node.isa()) << ", "
      << Counted(node.threads(), "thread") << "\n"
      << "  device       " << (node.device_name().empty() ? "-" : Said(node.device_name())) << "\n"
      << "  memory       " << FormatSize(node.used_bytes()) << " used of "
      << FormatSize(node.memory_bytes());
  if (node.host_memory_bytes() != 0) {
    out << (node.devices().empty() ? " of the device, " : " of all devices, ")
        << FormatSize(node.host_used_bytes()) << " of " << FormatSize(node.host_memory_bytes())
        << " of the host";
  }
  out << "\n";
  for (const v1::Node::Device& device : node.devices()) {
    out << "    GPU " << device.index() << "      " << Said(device.name()) << ", "
        << absl::StrFormat("%.0f", 100 * device.share()) << " % of each stage, "
        << FormatSize(device.memory_bytes()) << ", reads "
        << FormatSize(static_cast<uint64_t>(device.read_bytes_per_s())) << "/s\n";
  }
  out << "  measured     " << ReadsText(node) << " read, " << ComputesText(node) << "\n"
      << "  weight cache " << FormatSize(node.cache_bytes()) << ", "
      << FormatSize(node.fetched_bytes()) << " fetched since start";
  if (node.fetched_from_workers_bytes() != 0) {
    out << ", " << FormatSize(node.fetched_from_workers_bytes()) << " of it from other workers";
  }
  if (node.has_disk_free_bytes()) {
    out << ", " << FormatSize(node.disk_free_bytes()) << " free on its disk";
  }
  out << "\n"
      << "  weights      " << Counted(node.cached_blobs(), "tensor") << ", "
      << Counted(node.packed_layers(), "packed layer") << ", " << FormatSize(node.standby_bytes())
      << " kept for other nodes' layers, " << FormatSize(node.sent_bytes())
      << " sent to other workers\n"
      << "  heartbeat    " << Rounded(node.heartbeat_age_ms()) << " ms ago\n";
  for (const std::string& model : node.models()) {
    out << "  holds        " << Said(model) << "\n";
  }
  if (node.links().empty()) {
    return;
  }
  out << "\nLinks from here\n";
  Table table({"TO", ">LATENCY", ">RATE", "PROBLEM"});
  for (const v1::Node::Link& link : node.links()) {
    table.AddRow({link.peer().empty() ? "coordinator" : link.peer(),
                  Rounded(link.latency_ms()) + " ms",
                  FormatSize(static_cast<uint64_t>(link.bytes_per_s())) + "/s", link.error()});
  }
  table.Print(&out, "  ");
}

absl::Status ShowNode(const Context& context, const absl::StatusOr<v1::Node>& node) {
  RETURN_IF_ERROR(node.status());
  if (context.json()) {
    WriteJson(NodeDocument(*node), &context.out());
  } else {
    PrintNode(*node, context.out());
  }
  return absl::OkStatus();
}

// drain and resume: says the state that came of it.
absl::Status SayNode(const Context& context, const absl::StatusOr<v1::Node>& node) {
  if (!node.ok() || context.json()) {
    return ShowNode(context, node);
  }
  context.out() << node->name() << " is " << node->state() << "\n";
  return absl::OkStatus();
}

absl::Status RemoveGoneNodes(const Context& context) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::RemoveNodeResponse removed, client->RemoveGoneNodes());
  if (context.json()) {
    Json names = Json::array();
    for (const std::string& name : removed.removed()) names.push_back(name);
    WriteJson(Json{{"removed", std::move(names)}}, &context.out());
  } else if (removed.removed().empty()) {
    context.out() << "no node has left that holds nothing\n";
  } else {
    context.out() << "removed " << Counted(static_cast<uint64_t>(removed.removed_size()), "node")
                  << "\n";
  }
  return absl::OkStatus();
}

absl::Status RemoveNode(const Context& context, const std::string& name, bool force, bool gone) {
  if (gone != name.empty() || (gone && force)) {
    return UsageError(
        "give the NODE to forget, with --force if it is in use; or --gone alone for all that left");
  }
  if (gone) {
    return RemoveGoneNodes(context);
  }
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  RETURN_IF_ERROR(client->RemoveNode(name, force));
  if (context.json()) {
    WriteJson(Json{{"removed", name}}, &context.out());
  } else {
    context.out() << "removed " << name << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddNodeCommands(CommandTree* tree) {
  CLI::App* group = tree->AddGroup("node", "The workers");
  auto name = std::make_shared<std::string>();
  const std::string help = "The worker's name";
  tree->AddLeaf(group, "list", "List the workers", "  strata node list --json", ListNodes);
  CLI::App* show = tree->AddLeaf(group, "show", "All that is known of a worker",
                                 "  strata node show a", [name](Context& context) -> absl::Status {
                                   ASSIGN_OR_RETURN(const auto client, context.Connect());
                                   return ShowNode(context, client->GetNode(*name));
                                 });
  AddNodeName(show, "NODE", name.get(), help);
  CLI::App* drain = tree->AddLeaf(group, "drain", "Let no new load use a worker",
                                  "  strata node drain a\nModels that may move (model load "
                                  "--recovery move) leave it; what else runs on it\ngoes on. "
                                  "`strata node resume a` ends it.",
                                  [name](Context& context) -> absl::Status {
                                    ASSIGN_OR_RETURN(const auto client, context.Connect());
                                    return SayNode(context, client->DrainNode(*name));
                                  });
  AddNodeName(drain, "NODE", name.get(), help);
  CLI::App* resume =
      tree->AddLeaf(group, "resume", "Use a drained worker again", "  strata node resume a",
                    [name](Context& context) -> absl::Status {
                      ASSIGN_OR_RETURN(const auto client, context.Connect());
                      return SayNode(context, client->ResumeNode(*name));
                    });
  AddNodeName(resume, "NODE", name.get(), help);
  auto force = std::make_shared<bool>(false);
  auto gone = std::make_shared<bool>(false);
  CLI::App* remove = tree->AddLeaf(
      group, "remove", "Forget a worker, and revoke its certificates; or all that left",
      "  strata node remove a\n  strata node remove --gone\n"
      "One that is in use is refused; --force cancels what uses it. Certificates of the one that "
      "is\n"
      "named are revoked, so that it need not have left, and comes back only by joining anew.",
      [name, force, gone](Context& context) { return RemoveNode(context, *name, *force, *gone); });
  AddNodeName(remove, "NODE", name.get(), help)->required(false);
  remove->add_flag("--force", *force, "Cancel what uses it");
  remove->add_flag("--gone", *gone, "All that left and that no model has layers on");
  AddNodeTokenCommand(tree, group);
}

}  // namespace strata::cli
