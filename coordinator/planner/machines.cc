#include "coordinator/planner/machines.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/names.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr char kCpu[] = "cpu";
constexpr char kCuda[] = "cuda";
constexpr char kMlx[] = "mlx";

absl::Status Bad(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_MACHINES", what)
      .Hint("docs/PLANNING.md has a list of machines to begin with");
}

bool Positive(double value) { return std::isfinite(value) && value > 0; }

absl::Status CheckNetwork(const std::string& whose, const v1::PlannedNetwork& network) {
  if (!Positive(network.bytes_per_s())) {
    return Bad(absl::StrCat("the network of ", whose, " has no bandwidth"));
  }
  if (!std::isfinite(network.latency_ms()) || network.latency_ms() < 0) {
    return Bad(absl::StrCat("the network of ", whose, " has a latency below 0 ms"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PlannerNode> NodeOf(const v1::PlannedMachine& machine) {
  if (const absl::Status named = CheckNodeName(machine.name()); !named.ok()) {
    return Bad(std::string(named.message()));
  }
  const std::string whose = "machine '" + machine.name() + "'";
  const std::string device = machine.device().empty() ? kCpu : machine.device();
  if (device != kCpu && device != kCuda && device != kMlx) {
    return Bad(
        absl::StrCat("the device of ", whose, " is none of ", kCpu, ", ", kCuda, " and ", kMlx));
  }
  if (machine.memory_bytes() == 0) {
    return Bad(whose + " has no memory");
  }
  if (!Positive(machine.read_bytes_per_s()) || !Positive(machine.flops_per_s())) {
    return Bad(absl::StrCat(whose, " lacks the rate at which it reads memory, or computes"));
  }
  PlannerNode node;
  node.name = machine.name();
  node.device = device;
  node.numerics = device == kMlx ? kMlx : kCpu;
  node.free_bytes = machine.memory_bytes();
  node.read_bytes_per_s = machine.read_bytes_per_s();
  node.flops_per_s = machine.flops_per_s();
  node.ranks = device == kCpu;
  return node;
}

PlannerLink Between(const v1::PlannedNetwork& a, const v1::PlannedNetwork& b) {
  return {.latency_ms = std::max(a.latency_ms(), b.latency_ms()),
          .bytes_per_s = std::min(a.bytes_per_s(), b.bytes_per_s())};
}

}  // namespace

absl::StatusOr<PlannerCluster> ClusterOfMachines(const v1::PlanMachinesRequest& request) {
  if (request.machines().empty()) {
    return Bad("there are no machines");
  }
  if (request.machines_size() > kMaxPlannedMachines) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_MACHINES",
                 absl::StrCat("there are ", request.machines_size(), " machines"))
        .Limit(absl::StrCat("machines=", kMaxPlannedMachines))
        .Hint("plan with fewer");
  }
  RETURN_IF_ERROR(CheckNetwork("the coordinator", request.network()));
  PlannerCluster cluster;
  std::vector<v1::PlannedNetwork> networks;
  std::set<std::string_view> names;
  for (const v1::PlannedMachine& machine : request.machines()) {
    ASSIGN_OR_RETURN(PlannerNode node, NodeOf(machine));
    if (!names.insert(machine.name()).second) {
      return Bad("two machines are called '" + machine.name() + "'");
    }
    networks.push_back(machine.has_network() ? machine.network() : request.network());
    RETURN_IF_ERROR(CheckNetwork("machine '" + machine.name() + "'", networks.back()));
    cluster.nodes.push_back(std::move(node));
  }
  networks.push_back(request.network());
  const size_t n = networks.size();
  cluster.links.assign(n, std::vector<PlannerLink>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      // Of a machine to itself nothing travels.
      cluster.links[i][j] = i == j ? PlannerLink{0, 1e12} : Between(networks[i], networks[j]);
    }
  }
  return cluster;
}

}  // namespace strata
