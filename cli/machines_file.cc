#include "cli/machines_file.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/printable.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/planning.pb.h"

namespace strata::cli {
namespace {

constexpr size_t kShownNameBytes = 64;
constexpr double kDefaultGbitS = 1;
constexpr double kDefaultLatencyMs = 0.3;
constexpr double kBytesOfGbit = 1e9 / 8;

absl::Status Bad(const std::string& path, const toml::source_region& at, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_MACHINES",
               absl::StrCat(path, ":", at.begin.line, ": ", what))
      .Hint("docs/PLANNING.md has a list of machines to begin with");
}

class MachinesReader {
 public:
  explicit MachinesReader(const std::string& path) : path_(path) {}

  absl::Status Read(const toml::table& root, v1::PlanMachinesRequest* request) const {
    v1::PlannedNetwork* network = request->mutable_network();
    network->set_bytes_per_s(kDefaultGbitS * kBytesOfGbit);
    network->set_latency_ms(kDefaultLatencyMs);
    const toml::table* machines = nullptr;
    for (const auto& [key, node] : root) {
      if (key.str() == "network" && node.is_table()) {
        for (const auto& [name, value] : *node.as_table()) {
          ASSIGN_OR_RETURN(const bool known, Network(name.str(), value, network));
          if (!known) return Unknown(name, "gbit-s and latency-ms");
        }
      } else if (key.str() == "machines" && node.is_table()) {
        machines = node.as_table();
      } else {
        return Unknown(key, "[network] and [machines.NAME]");
      }
    }
    return machines == nullptr ? Bad(path_, root.source(), "there is no [machines.NAME]")
                               : Machines(*machines, request);
  }

 private:
  absl::Status Unknown(const toml::key& key, const std::string& known) const {
    return Bad(path_, key.source(),
               absl::StrCat("'", Printable(key.str(), kShownNameBytes), "' is none of ", known));
  }

  absl::StatusOr<double> Number(const toml::node& node) const {
    const std::optional<double> value = node.value<double>();
    if (!value.has_value()) return Bad(path_, node.source(), "this is to be a number");
    return *value;
  }

  // False where `name` is none of a network's.
  absl::StatusOr<bool> Network(std::string_view name, const toml::node& node,
                               v1::PlannedNetwork* network) const {
    if (name == "gbit-s") {
      ASSIGN_OR_RETURN(const double gbit_s, Number(node));
      network->set_bytes_per_s(gbit_s * kBytesOfGbit);
    } else if (name == "latency-ms") {
      ASSIGN_OR_RETURN(const double latency_ms, Number(node));
      network->set_latency_ms(latency_ms);
    } else {
      return false;
    }
    return true;
  }

  absl::Status Machines(const toml::table& machines, v1::PlanMachinesRequest* request) const {
    // The parser keeps tables by name; plans name machines in the order in which they were written.
    std::vector<std::pair<std::string, const toml::node*>> order;
    for (const auto& [key, node] : machines) {
      order.emplace_back(std::string(key.str()), &node);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.second->source().begin.line < b.second->source().begin.line;
    });
    for (const auto& [name, node] : order) {
      const toml::table* table = node->as_table();
      if (table == nullptr) {
        return Bad(path_, node->source(), "a machine is to be a table");
      }
      v1::PlannedMachine* machine = request->add_machines();
      machine->set_name(name);
      RETURN_IF_ERROR(Machine(*table, request->network(), machine));
    }
    return absl::OkStatus();
  }

  absl::Status Machine(const toml::table& table, const v1::PlannedNetwork& common,
                       v1::PlannedMachine* machine) const {
    v1::PlannedNetwork network = common;
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      ASSIGN_OR_RETURN(const bool of_network, Network(name, node, &network));
      if (of_network) {
        *machine->mutable_network() = network;
      } else if (name == "device" && node.is_string()) {
        machine->set_device(node.as_string()->get());
      } else if (name == "memory" && node.is_string()) {
        const auto bytes = ParseSize(node.as_string()->get());
        if (!bytes.ok()) return Bad(path_, node.source(), std::string(bytes.status().message()));
        machine->set_memory_bytes(*bytes);
      } else if (name == "read-gb-s") {
        ASSIGN_OR_RETURN(const double rate, Number(node));
        machine->set_read_bytes_per_s(rate * 1e9);
      } else if (name == "tflop-s") {
        ASSIGN_OR_RETURN(const double rate, Number(node));
        machine->set_flops_per_s(rate * 1e12);
      } else {
        return Unknown(key,
                       "device and memory, which are texts, read-gb-s, tflop-s, gbit-s and "
                       "latency-ms");
      }
    }
    return absl::OkStatus();
  }

  const std::string& path_;
};

}  // namespace

absl::Status ReadMachines(std::string_view text, const std::string& path,
                          v1::PlanMachinesRequest* request) {
  if (text.size() > kMaxMachinesFileBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_MACHINES", path + " is too large")
        .Limit(absl::StrCat("bytes=", kMaxMachinesFileBytes))
        .Hint("docs/PLANNING.md has a list of machines to begin with");
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    std::string what(parsed.error().description());
    std::replace(what.begin(), what.end(), '\n', ' ');
    return Bad(path, parsed.error().source(), what);
  }
  return MachinesReader(path).Read(parsed.table(), request);
}

}  // namespace strata::cli
