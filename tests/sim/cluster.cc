#include "tests/sim/cluster.h"

#include <string>

#include "common/fingerprint.h"

namespace strata::sim {
namespace {

std::string Show(const v1::SequenceName& name) {
  return name.request_id() + "#" + std::to_string(name.generation() & 0xFFFFFFFF);
}

std::string Show(const v1::StepCommand& command) {
  if (command.has_fork()) {
    return "fork " + Show(command.fork().source()) + " to " + Show(command.fork().destination()) +
           " at " + std::to_string(command.fork().length());
  }
  if (command.has_truncate()) {
    return "cut " + Show(command.truncate().sequence()) + " to " +
           std::to_string(command.truncate().length());
  }
  return "release " + Show(command.release().sequence());
}

}  // namespace

std::string Show(const v1::StepFrame& frame) {
  std::string text = (frame.resync() ? "resync, step " : "step ") + std::to_string(frame.step()) +
                     " of epoch " + std::to_string(frame.epoch()) + " [";
  const char* comma = "";
  for (const v1::StepCommand& command : frame.commands()) {
    text += comma + Show(command);
    comma = ", ";
  }
  for (const v1::StepItem& item : frame.items()) {
    text += comma + Show(item.sequence()) + " @" + std::to_string(item.position()) + "+" +
            std::to_string(item.token_ids_size()) +
            (item.has_error() ? " refused: " + item.error().reason() : "");
    comma = ", ";
  }
  return text + "]";
}

std::string Show(const v1::StepResult& result) {
  std::string text = "result of step " + std::to_string(result.step()) + " of epoch " +
                     std::to_string(result.epoch()) + " [";
  const char* comma = "";
  for (const v1::ItemResult& item : result.items()) {
    text += comma + Show(item.sequence());
    if (item.has_error()) {
      text += " refused: " + item.error().reason();
    } else if (item.tokens_size() > 0) {
      text += " = " + std::to_string(item.tokens(0).token_id());
    }
    comma = ", ";
  }
  return text + "]";
}

std::string NodeName(Machine machine) {
  return machine == kCoordinatorMachine ? "" : "worker-" + std::to_string(machine);
}

Machine MachineOf(const std::string& node) {
  return node.empty() ? kCoordinatorMachine
                      : static_cast<Machine>(std::stoi(node.substr(node.find('-') + 1)));
}

uint64_t ChannelOf(uint64_t deployment, uint64_t epoch) { return Mix64(Mix64(deployment) + epoch); }

}  // namespace strata::sim
