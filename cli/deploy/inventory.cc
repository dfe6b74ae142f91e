#include "cli/deploy/inventory.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/names.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

constexpr size_t kShownNameBytes = 64;
constexpr char kInventoryHint[] = "see docs/OPERATIONS.md, Many machines";

// Set by deploying itself.
constexpr std::string_view kOwnFlags[] = {"name", "coordinator", "tls-dir", "authority",
                                          "insecure"};

// What is wrong, with the place of `node` in the file.
absl::Status Bad(const std::string& path, const toml::source_region& at, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_INVENTORY",
               absl::StrCat(path, ":", at.begin.line, ": ", std::string(what)))
      .Hint(kInventoryHint);
}

std::optional<std::string> TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<Inventory> Read(const toml::table& root) {
    Inventory inventory;
    const toml::table* coordinator = nullptr;
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (name == "name") {
        RETURN_IF_ERROR(Text(name, node, &inventory.cluster));
      } else if (name == "packages") {
        RETURN_IF_ERROR(Text(name, node, &inventory.packages));
      } else if (name == "coordinator" && node.is_table()) {
        coordinator = node.as_table();
      } else if (name == "machines" && node.is_table()) {
        RETURN_IF_ERROR(Machines(*node.as_table(), &inventory));
      } else {
        return Bad(path_, key.source(),
                   absl::StrCat("'", Shown(name),
                                "' is none of name, packages, [coordinator] and [machines.NAME]"));
      }
    }
    if (inventory.packages.empty()) {
      return Bad(path_, root.source(), "`packages` is missing: the folder with Debian packages");
    }
    if (coordinator == nullptr) {
      return Bad(path_, root.source(),
                 "[coordinator] is missing, with the machine that the coordinator runs on");
    }
    RETURN_IF_ERROR(Coordinator(*coordinator, &inventory));
    return inventory;
  }

 private:
  static std::string Shown(std::string_view text) { return Printable(text, kShownNameBytes); }

  absl::Status Text(std::string_view name, const toml::node& node, std::string* target) const {
    const auto text = TextOf(node);
    if (!text.has_value() || text->empty()) {
      return Bad(path_, node.source(), absl::StrCat("'", Shown(name), "' is to be a text"));
    }
    *target = *text;
    return absl::OkStatus();
  }

  absl::Status Flag(std::string_view name, const toml::node& node, Settings* settings) const {
    if (std::find(std::begin(kOwnFlags), std::end(kOwnFlags), name) != std::end(kOwnFlags)) {
      return Bad(path_, node.source(),
                 absl::StrCat("'", std::string(name), "' is set by deploying itself"));
    }
    std::string text;
    RETURN_IF_ERROR(Text(name, node, &text));
    settings->emplace_back(name, text);
    return absl::OkStatus();
  }

  absl::Status Machines(const toml::table& machines, Inventory* inventory) const {
    for (const auto& [key, node] : machines) {
      Machine machine;
      machine.name = std::string(key.str());
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        return Bad(path_, key.source(),
                   absl::StrCat("[machines.", Shown(machine.name), "] is to be a table"));
      }
      if (const absl::Status named = CheckNodeName(machine.name); !named.ok()) {
        return Bad(path_, key.source(), strata::Describe(named));
      }
      RETURN_IF_ERROR(ReadMachine(*table, &machine));
      inventory->machines.push_back(std::move(machine));
    }
    if (inventory->machines.size() > kMaxMachines) {
      return Bad(path_, machines.source(),
                 absl::StrCat("it has more than ", kMaxMachines, " machines"));
    }
    // The parser keeps tables by name; people expect the order in which they wrote them.
    std::sort(inventory->machines.begin(), inventory->machines.end(),
              [&](const Machine& a, const Machine& b) {
                return LineOf(machines, a.name) < LineOf(machines, b.name);
              });
    return absl::OkStatus();
  }

  static toml::source_index LineOf(const toml::table& machines, const std::string& name) {
    return machines.get(name)->source().begin.line;
  }

  absl::Status ReadMachine(const toml::table& table, Machine* machine) const {
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      if (name == "ssh") {
        RETURN_IF_ERROR(Text(name, node, &machine->ssh));
      } else if (name == "address") {
        RETURN_IF_ERROR(Text(name, node, &machine->address));
      } else if (name == "worker") {
        if (!node.is_boolean()) {
          return Bad(path_, node.source(), "'worker' is true or false");
        }
        machine->worker = node.as_boolean()->get();
      } else {
        RETURN_IF_ERROR(Flag(name, node, &machine->worker_settings));
      }
    }
    const std::string where = "[machines." + machine->name + "]";
    // What begins with '-' would be an option of ssh.
    if (machine->ssh.empty() || machine->ssh.front() == '-') {
      return Bad(path_, table.source(), where + " lacks `ssh`, as \"root@10.77.0.2\"");
    }
    return absl::OkStatus();
  }

  absl::Status Coordinator(const toml::table& table, Inventory* inventory) const {
    for (const auto& [key, node] : table) {
      if (key.str() == "machine") {
        RETURN_IF_ERROR(Text(key.str(), node, &inventory->coordinator));
      } else {
        RETURN_IF_ERROR(Flag(key.str(), node, &inventory->coordinator_settings));
      }
    }
    const bool known =
        std::any_of(inventory->machines.begin(), inventory->machines.end(),
                    [&](const Machine& machine) { return machine.name == inventory->coordinator; });
    return known ? absl::OkStatus()
                 : Bad(path_, table.source(),
                       inventory->coordinator.empty()
                           ? "[coordinator] lacks `machine`, one of the [machines.NAME]"
                           : absl::StrCat("the coordinator's machine '",
                                          Shown(inventory->coordinator),
                                          "' is none of the [machines.NAME]"));
  }

  const std::string& path_;
};

}  // namespace

const Machine& Inventory::CoordinatorMachine() const {
  const auto found = std::find_if(machines.begin(), machines.end(), [&](const Machine& machine) {
    return machine.name == coordinator;
  });
  STRATA_CHECK(found != machines.end());
  return *found;
}

absl::StatusOr<Inventory> ParseInventory(std::string_view text, const std::string& path) {
  if (text.size() > kMaxInventoryBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_INVENTORY", path + " is too large")
        .Limit(absl::StrCat("bytes=", kMaxInventoryBytes))
        .Hint(kInventoryHint);
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    std::string what(parsed.error().description());
    std::replace(what.begin(), what.end(), '\n', ' ');
    return Bad(path, parsed.error().source(), what);
  }
  return Reader(path).Read(parsed.table());
}

}  // namespace strata::deploy
