#include "coordinator/service/models/record_writer.h"

#include <utility>

#include "common/app/log.h"
#include "common/status.h"

namespace strata {
namespace {

// When the store refused something, which it may take once its disk has room.
constexpr nanoseconds kWriteAgain = std::chrono::seconds(5);

}  // namespace

void RecordWriter::SaveNode(const std::string& node) {
  unsaved_nodes_.insert(node);
  forgotten_nodes_.erase(node);
  WriteSoon();
}

void RecordWriter::ForgetNode(const std::string& node) {
  forgotten_nodes_.insert(node);
  unsaved_nodes_.erase(node);
  WriteSoon();
}

void RecordWriter::SaveDeployment(uint64_t deployment) {
  unsaved_deployments_.insert(deployment);
  WriteSoon();
}

std::optional<TimePoint> RecordWriter::Tick(TimePoint now) {
  if (write_again_.has_value() && now >= *write_again_) {
    write_again_.reset();
    WriteSoon();
  }
  return write_again_;
}

void RecordWriter::WriteSoon() {
  if (!std::exchange(writing_, true)) {
    tasks_->Run([this] { WriteWhatWaits(); });
  }
}

std::optional<RecordWriter::Records> RecordWriter::Take() {
  if (unsaved_nodes_.empty() && unsaved_deployments_.empty() && forgotten_nodes_.empty()) {
    return std::nullopt;
  }
  Records records;
  for (const std::string& name : std::exchange(unsaved_nodes_, {})) {
    if (const NodeRecord* node = cluster_->Find(name)) {
      records.nodes.push_back({name, node->info, node->draining});
    }
  }
  for (const uint64_t id : std::exchange(unsaved_deployments_, {})) {
    if (const Deployment* deployment = deployments_->Find(id)) {
      records.deployments.push_back(deployment->Record());
    }
  }
  for (const std::string& name : std::exchange(forgotten_nodes_, {})) {
    if (cluster_->Find(name) == nullptr) {
      records.forgotten.push_back(name);
    }
  }
  return records;
}

void RecordWriter::WriteWhatWaits() {
  while (true) {
    MutexLock lock(&changes_);
    const auto records = loop_->Call([this] {
      auto taken = Take();
      writing_ = taken.has_value();
      return taken;
    });
    if (!records.has_value() || !records->has_value()) {
      return;
    }
    if (!WriteHeld(**records)) {
      loop_->Call([this] {
        writing_ = false;
        write_again_ = clock_->Now() + kWriteAgain;
        return true;
      });
      return;
    }
  }
}

bool RecordWriter::Write(const Records& records) {
  MutexLock lock(&changes_);
  return WriteHeld(records);
}

bool RecordWriter::WriteHeld(const Records& records) {
  bool all = true;
  for (const StoredDeployment& deployment : records.deployments) {
    const absl::Status saved = store_->SaveDeployment(deployment);
    // Another record is newer, or a deployment was replaced: nothing is left to do.
    const bool again = !saved.ok() && !absl::IsFailedPrecondition(saved);
    all &= !again;
    loop_->Post([this, id = deployment.id, epoch = deployment.plan.epoch(), saved, again] {
      if (Deployment* recorded = deployments_->Find(id)) {
        recorded->OnRecorded(epoch, saved);
        if (again) unsaved_deployments_.insert(id);
      }
    });
  }
  for (const StoredNode& node : records.nodes) {
    if (absl::Status saved = store_->SaveNode(node.name, node.info, node.draining); !saved.ok()) {
      LogError({{"node", node.name}}, Describe(saved));
      all = false;
      loop_->Post([this, name = node.name] { unsaved_nodes_.insert(name); });
    }
  }
  if (absl::Status removed = store_->RemoveNodes(records.forgotten); !removed.ok()) {
    LogError({{"nodes", uint64_t{records.forgotten.size()}}}, Describe(removed));
    all = false;
    loop_->Post(
        [this, names = records.forgotten] { forgotten_nodes_.insert(names.begin(), names.end()); });
  }
  return all;
}

}  // namespace strata
