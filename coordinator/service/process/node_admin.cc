#include "coordinator/service/process/node_admin.h"

#include <optional>
#include <utility>

#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/service/loop/errors.h"

namespace strata {
namespace {

absl::Status NodeAlive(const NodeRecord& node) {
  const std::string& name = node.info.name();
  return Error(absl::StatusCode::kFailedPrecondition, "NODE_ALIVE",
               "node '" + name + "' at " + node.info.address() + " is alive and would join again")
      .Node(name)
      .Hint("stop its strata-worker first, or `strata node drain " + name +
            "` to place nothing new on it");
}

}  // namespace

absl::StatusOr<std::vector<v1::Node>> NodeAdmin::List() {
  return loop_->Ask([this] { return cluster_->Describe(clock_->Now()); });
}

absl::StatusOr<v1::Node> NodeAdmin::Get(const std::string& name) {
  return loop_->Ask([&]() -> absl::StatusOr<v1::Node> {
    const NodeRecord* node = cluster_->Find(name);
    if (node == nullptr) {
      return Error(absl::StatusCode::kNotFound, "NODE_NOT_FOUND", "there is no node '" + name + "'")
          .Hint("see `strata node list`");
    }
    return cluster_->Describe(*node, clock_->Now());
  });
}

absl::StatusOr<v1::Node> NodeAdmin::SetDraining(const std::string& name, bool draining) {
  {
    MutexLock lock(records_->changes());
    ASSIGN_OR_RETURN(const auto info, loop_->Ask([&]() -> std::optional<v1::NodeInfo> {
      const NodeRecord* node = cluster_->Find(name);
      return node != nullptr ? std::optional(node->info) : std::nullopt;
    }));
    if (info.has_value()) {
      RETURN_IF_ERROR(store_->SaveNode(name, *info, draining));
    }
    const auto done = loop_->Call([&] {
      const absl::Status set = cluster_->SetDraining(name, draining);
      if (set.ok()) deployments_->OnNodeDraining(name, draining);
      return set;
    });
    RETURN_IF_ERROR(done.value_or(Stopping()));
  }
  return Get(name);
}

absl::StatusOr<std::vector<uint64_t>> NodeAdmin::CheckRemove(const std::string& name,
                                                             bool force) const {
  std::vector<uint64_t> users = deployments_->On(name);
  if (!users.empty() && !force) {
    const std::string& model = deployments_->Find(users.front())->model()->name;
    return Error(absl::StatusCode::kFailedPrecondition, "NODE_IN_USE",
                 "model '" + model + "' has layers on node '" + name + "'")
        .Node(name)
        .Hint("`strata model unload " + model + "` first, or use --force");
  }
  if (const NodeRecord* node = cluster_->Find(name); node != nullptr && node->alive) {
    return NodeAlive(*node);
  }
  return users;
}

absl::StatusOr<std::vector<std::string>> NodeAdmin::RemoveGone() {
  MutexLock lock(records_->changes());
  ASSIGN_OR_RETURN(const auto gone, loop_->Ask([&] {
    std::vector<std::string> names = cluster_->Gone();
    std::erase_if(names,
                  [&](const std::string& name) { return !deployments_->ModelOn(name).empty(); });
    return names;
  }));
  RETURN_IF_ERROR(store_->RemoveNodes(gone));
  return loop_->Ask([&] {
    std::vector<std::string> removed;
    for (const std::string& name : gone) {
      const NodeRecord* node = cluster_->Find(name);
      if (node != nullptr && node->alive) {  // It has joined again meanwhile.
        records_->SaveNode(name);
      } else if (node == nullptr || cluster_->Remove(name).ok()) {
        removed.push_back(name);
      }
    }
    return removed;
  });
}

absl::Status NodeAdmin::Remove(const std::string& name, bool force) {
  MutexLock lock(records_->changes());
  ASSIGN_OR_RETURN(const std::vector<uint64_t> users,
                   loop_->Ask([&] { return CheckRemove(name, force); }));
  for (const uint64_t user : users) {
    RETURN_IF_ERROR(loads_->Erase(
        user,
        Error(absl::StatusCode::kUnavailable, "NODE_REMOVED", "node '" + name + "' was removed")
            .Node(name),
        lock));
  }
  // One that has not been recorded since it joined, or never was a node, is not there.
  if (absl::Status removed = store_->RemoveNode(name);
      !removed.ok() && !absl::IsNotFound(removed)) {
    return removed;
  }
  const auto done = loop_->Call([&]() -> absl::Status {
    const NodeRecord* node = cluster_->Find(name);
    if (node != nullptr && node->alive) {  // It has joined again meanwhile.
      records_->SaveNode(name);
      return NodeAlive(*node);
    }
    return cluster_->Remove(name);
  });
  return done.value_or(Stopping());
}

}  // namespace strata
